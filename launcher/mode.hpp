#pragma once

#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace acc::launcher {

enum class Mode { single, deepspeed, fsdp, megatron, multi_gpu, tpu };

inline constexpr const char* kNoTpu =
    "TPUs are not supported: start TPU jobs with `accelerate launch`";

/// In the original's order: --cpu beats all others, DeepSpeed beats FSDP, and so on.
[[nodiscard]] Mode mode_of(const JobSpec& spec);

/// False where the flag or key that chooses the mode has a bad value or is misspelled.
[[nodiscard]] bool mode_is_known(const JobSpec& spec);

/// Flags or keys count the workers as torchrun does; a scheduler's counts make no torchrun line.
[[nodiscard]] bool counts_as_torchrun(const JobSpec& spec);

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

/// FSDP 2's word for a sharding strategy of FSDP 1, by its name in any case or its number in torch:
/// whether parameters are freed after the forward pass. nothing: it is none.
[[nodiscard]] std::optional<bool> reshards_after_forward(std::string_view strategy);

/// .deepspeed_env, by which the deepspeed program hands variables to other machines.
struct DeepspeedEnv {
  std::vector<std::string> lines;    ///< "NAME=VALUE"
  std::vector<std::string> skipped;  ///< names of those that it could not read back
};
DeepspeedEnv deepspeed_env(const Environment& variables);

}  // namespace acc::launcher
