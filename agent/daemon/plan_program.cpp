#include "agent/daemon/plan_program.hpp"

#include "agent/daemon/json_text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

namespace {

using Json = nlohmann::json;

/// Discarded if it can't be read; nothing: there is none.
std::optional<Json> plan_in(std::string_view output) {
  const auto begin = output.starts_with("{\n") ? 0 : output.find("\n{\n");
  if (begin == std::string_view::npos) return std::nullopt;
  // Messages may follow, too: the plan ends with the first bracket at the start of a line.
  const auto end = output.find("\n}", begin);
  if (end == std::string_view::npos) return Json(Json::value_t::discarded);
  return parse_bounded(output.substr(begin, end + 2 - begin), kDeepestForeign, kMostForeign);
}

void take(const Json& plan, const char* part, const char* name, std::uint32_t& into) {
  const auto facts = plan.find(part);
  if (facts == plan.end() || !facts->is_object()) return;
  const auto found = facts->find(name);
  if (found != facts->end() && found->is_number_unsigned())
    into = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(found->get<std::uint64_t>(), UINT32_MAX));
}

PlanShare share_of(const Json& plan) {
  PlanShare share;
  take(plan, "launch", "nproc_per_node", share.slots);
  share.slots = std::max(1U, share.slots);
  take(plan, "share", "slots", share.slots);
  take(plan, "share", "gpus", share.gpus);
  return share;
}

std::optional<PlanProgram> program_of(const Json& plan) {
  if (!plan.contains("command") || !plan["command"].is_array()) return std::nullopt;
  std::vector<std::string> words;
  for (const auto& word : plan["command"]) {
    if (!word.is_string()) return std::nullopt;
    words.push_back(word.get<std::string>());
  }
  if (words.empty()) return std::nullopt;
  std::string problem;
  if (const auto found = plan.find("program_problem"); found != plan.end() && found->is_string())
    problem = found->get<std::string>();
  // An interpreter with a script, or with options of its own (-m package).
  const std::string name = words[0].substr(words[0].rfind('/') + 1);
  const bool is_unbuffered = words.size() > 1 && words[1] == "-u";
  const std::size_t script = is_unbuffered ? 2 : 1;
  const bool is_python = is_unbuffered || name.starts_with("python");
  if (is_python && words.size() > script && !words[script].starts_with('-'))
    return PlanProgram{words[script], true, std::move(problem)};
  return PlanProgram{words[0], false, std::move(problem)};
}

}  // namespace

Result<std::optional<PrintedPlan>> read_plan(std::string_view output) {
  const auto plan = plan_in(output);
  if (!plan) return std::optional<PrintedPlan>{};
  if (!plan->is_object())
    return Error{Errc::malformed, "the plan that acc-launch made of the job can't be read"};
  return std::optional{PrintedPlan{share_of(*plan), program_of(*plan)}};
}

}  // namespace acc::agent::daemon
