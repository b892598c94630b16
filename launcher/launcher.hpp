#pragma once

#include "agent/guardian.hpp"
#include "agent/job_plan.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::launcher {

/// acc-launch from its command line to its exit code. `has_output`: whether the caller left us a
/// standard output, which --help and the like need.
int launch(int argc, char** argv, const agent::GuardianLink& guardian, bool has_output = true);

/// Whether the command line begins with --print_plan, as the daemon's checks of a job do: launch()
/// starts nothing then, and needs no guardian. (Behind other words it may be an argument of the
/// script.)
[[nodiscard]] bool only_prints_plan(int argc, const char* const* argv);

/// Asked with the plan before anything is started; an exit code ends it there.
using BeforeStart = std::function<std::optional<int>(const agent::JobPlan&)>;

/// Another program of ours that launches.
struct Caller {
  BeforeStart before_start{};
  /// With --hosts: reads what all ranks print, so that neither files nor a filter may take it.
  bool reads_all_output = false;
};

/// The same for other programs of ours: `words` as behind acc-launch's name.
int launch(const std::vector<std::string>& words, const agent::GuardianLink& guardian,
           bool has_output, Caller caller = {});

}  // namespace acc::launcher
