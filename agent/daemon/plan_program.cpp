#include "agent/daemon/plan_program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

namespace {

using Json = nlohmann::json;

/// Discarded if there is none.
Json plan_in(std::string_view output) {
  const auto none = Json(Json::value_t::discarded);
  const auto begin = output.starts_with("{\n") ? 0 : output.find("\n{\n");
  if (begin == std::string_view::npos) return none;
  // Messages may follow, too: the plan ends with the first bracket at the start of a line.
  const auto end = output.find("\n}", begin);
  if (end == std::string_view::npos) return none;
  return Json::parse(output.substr(begin, end + 2 - begin), nullptr, false);
}

}  // namespace

std::optional<std::uint32_t> workers_of_plan(std::string_view output) {
  const auto plan = plan_in(output);
  if (!plan.is_object() || !plan.contains("launch") || !plan["launch"].is_object())
    return std::nullopt;
  const auto& launch = plan["launch"];
  const auto found = launch.find("nproc_per_node");
  if (found == launch.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint32_t>();
}

PlanShare share_of_plan(std::string_view output) {
  PlanShare share{std::max(1U, workers_of_plan(output).value_or(1)), 0};
  const auto plan = plan_in(output);
  if (!plan.is_object() || !plan.contains("share") || !plan["share"].is_object()) return share;
  const auto& asked = plan["share"];
  const auto take = [&](const char* name, std::uint32_t& into) {
    const auto found = asked.find(name);
    if (found != asked.end() && found->is_number_unsigned())
      into = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(found->get<std::uint64_t>(), UINT32_MAX));
  };
  take("slots", share.slots);
  take("gpus", share.gpus);
  return share;
}

std::optional<PlanProgram> program_of_plan(std::string_view output) {
  const auto plan = plan_in(output);
  if (!plan.is_object() || !plan.contains("command") || !plan["command"].is_array())
    return std::nullopt;
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

}  // namespace acc::agent::daemon
