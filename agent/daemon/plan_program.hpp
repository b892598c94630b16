#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace acc::agent::daemon {

/// What a job's workers execute.
struct PlanProgram {
  std::string path;        ///< as in the plan: absolute, relative to the folder, or a name for PATH
  bool is_script = false;  ///< of an interpreter: it must be readable, not executable
  std::string problem;     ///< in acc-launch's words, with its advice; empty: it is there
};
// Of what `acc-launch --print_plan` wrote, messages and plan; nothing if that can't be seen. Pure.
[[nodiscard]] std::optional<PlanProgram> program_of_plan(std::string_view output);
/// Workers on this node, which take a slot each.
[[nodiscard]] std::optional<std::uint32_t> workers_of_plan(std::string_view output);
/// What of the node its config file asks for; slots: one for each worker, if it names none.
struct PlanShare {
  std::uint32_t slots = 1;
  std::uint32_t gpus = 0;
};
[[nodiscard]] PlanShare share_of_plan(std::string_view output);

}  // namespace acc::agent::daemon
