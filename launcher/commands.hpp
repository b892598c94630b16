#pragma once

#include "launcher/job_spec.hpp"
#include "launcher/program.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// argv of the workers, and of the outer programs mpirun and deepspeed.
namespace acc::launcher {

/// The script is run by itself, without Python.
[[nodiscard]] bool runs_directly(const JobSpec& spec, ScriptKind script);
/// `PYTHON [-u] [-m] script args`, or `script args` where the script runs by itself.
std::vector<std::string> worker_command(const JobSpec& spec, const std::string& interpreter,
                                        ScriptKind script, bool unbuffered);
/// In front of the worker's command. `program`: mpirun or mpiexec; `kind` as HostFacts::mpi.
std::vector<std::string> mpirun_prefix(const JobSpec& spec, const std::string& program,
                                       const std::string& kind);
std::vector<std::string> deepspeed_command(const JobSpec& spec, std::uint16_t port);

}  // namespace acc::launcher
