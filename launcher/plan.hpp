#pragma once

#include "agent/job_plan.hpp"
#include "launcher/config.hpp"
#include "launcher/elf_libraries.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"
#include "launcher/program.hpp"

#include <string>

namespace acc::launcher {

/// What a plan is made from, apart from the machine's facts.
struct PlanInputs {
  const Environment& environment;  ///< the caller's
  std::string cwd;
  std::string interpreter;  ///< find_interpreter
  ScriptKind script = ScriptKind::python;
  MpiLibrary mpi = MpiLibrary::none;   ///< that the program was linked with
  std::string mpi_program = "mpirun";  ///< mpiexec where only that is installed
};

struct Planned {
  agent::JobPlan plan;
  Complaints complaints;  ///< when not empty, the plan must not be used
};

/// JobSpec + facts → what the agent carries out. Reads nothing but its arguments (a free port is
/// asked of the system where the user wants one).
Planned make_plan(const JobSpec& spec, HostFacts& facts, const PlanInputs& inputs);

/// The complaints of make_plan that concern one value each. For a spec that can't become a plan, so
/// that the user reads everything at once.
Complaints check_values(const JobSpec& spec, const Environment& environment);

/// Why this version can't run a plan that it can show; empty if it can.
Complaints check_runnable(const JobSpec& spec, const agent::JobPlan& plan);

}  // namespace acc::launcher
