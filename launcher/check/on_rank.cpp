#include "launcher/check/on_rank.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/check/machine_checks.hpp"
#include "launcher/check/machine_view.hpp"
#include "launcher/check/marked_lines.hpp"
#include "launcher/check/worker_program.hpp"
#include "launcher/program.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace acc::check {
namespace {

std::uint32_t number(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : parse_number<std::uint32_t>(text).value_or(otherwise);
}

/// @return false: a job can't run here.
bool tell_machine(const MachineView& view, const agent::JobPlan& plan) {
  auto checks = judge(view, plan);
  // The port is taken by now, by the job itself.
  std::erase_if(checks, [](const Check& check) { return check.name == "port"; });
  nlohmann::json told{{"host", view.host_name},
                      {"ranks", plan.local_world_size},
                      {"checks", nlohmann::json::array()}};
  bool well = true;
  for (const auto& check : checks) {
    told["checks"].push_back(as_json(check));
    well = well && check.verdict != Verdict::failed;
  }
  const auto line = std::string{kMachineMark} +
                    told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  return well;
}

}  // namespace

int run_on_rank(std::span<const std::string> worker_words) {
  const auto worker = find_worker_program();
  agent::JobPlan plan;  // what the checks ask of it, as this rank knows it
  plan.local_world_size = number("LOCAL_WORLD_SIZE", 1);
  plan.cluster.nodes_max = number("GROUP_WORLD_SIZE", 1);
  const auto environment = launcher::read_environment();
  RankVariables variables;
  if (number("LOCAL_RANK", 0) == 0) {
    auto view = look_at_machine(plan, environment, worker);
    if (!tell_machine(view, plan)) return to_int(ExitCode::failure);
    variables = std::move(view.rank_variables);
  } else {
    variables = find_rank_variables(plan, environment, worker);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words{worker};
  words.insert(words.end(), worker_words.begin(), worker_words.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  const int why = errno;
  std::fprintf(stderr, "acc-test: '%s' can't be started: %s: it belongs there or beside acc-test\n",
               worker.c_str(), std::strerror(why));
  return to_int(ExitCode::failure);
}

}  // namespace acc::check
