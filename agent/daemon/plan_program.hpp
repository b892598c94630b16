#pragma once

#include "common/error.hpp"

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
/// What of the node its config file asks for; slots: one for each worker, if it names none.
struct PlanShare {
  std::uint32_t slots = 1;
  std::uint32_t gpus = 0;
};
struct PrintedPlan {
  PlanShare share;
  std::optional<PlanProgram> program;  ///< nothing: that can't be seen
};
/// Of what `acc-launch --print_plan` wrote, messages and plan, as it succeeded. Pure.
/// @return nothing: there is no plan, as of --version; malformed: there is one that can't be read
[[nodiscard]] Result<std::optional<PrintedPlan>> read_plan(std::string_view output);

}  // namespace acc::agent::daemon
