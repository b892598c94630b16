#pragma once

#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

#include <map>
#include <string>

namespace acc::launcher {

enum class Mode { single, deepspeed, fsdp, megatron, multi_gpu, tpu };

/// In the original's order: --cpu beats all others, DeepSpeed beats FSDP, and so on.
[[nodiscard]] Mode mode_of(const JobSpec& spec);

struct ModeEnv {
  std::map<std::string, std::string> variables;
  Complaints complaints;
  std::vector<std::string> warnings;
};

/// The variables by which Accelerate's library learns the configuration, as the original sets them
/// in this mode. `interpreter` is where fp8 backends and DeepSpeed are looked for; `cwd` becomes an
/// entry of DeepSpeed's PYTHONPATH.
ModeEnv mode_environment(const JobSpec& spec, HostFacts& facts, const Environment& environment,
                         const std::string& interpreter, const std::string& cwd);

/// Lines for .deepspeed_env, by which the deepspeed program hands variables to other machines.
/// Entries that it could not read back are left out and named in `warnings`.
std::vector<std::string> deepspeed_env_lines(
    const std::map<std::string, std::string, std::less<>>& variables,
    std::vector<std::string>& warnings);

}  // namespace acc::launcher
