#pragma once

#include "launcher/cli.hpp"
#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

#include <optional>

namespace acc::launcher {

struct Merged {
  JobSpec spec;
  Complaints complaints;
};

/// Default < config file < flag, with the original's special rules (mode, precision, threads, what
/// is guessed).
Merged merge(const CommandLine& line, const std::optional<Config>& config, HostFacts& facts,
             const Environment& environment);

/// The flag by which a line that gives no number of workers is torchrun's, which starts one: only
/// torchrun has --standalone and --rdzv_endpoint. nullptr: there is none, the line says how many, or
/// something else in it is not torchrun's.
[[nodiscard]] const GivenOption* sign_of_torchrun(const CommandLine& line);

/// Whether the default config file counts: not with --cpu, and not for a torchrun line.
[[nodiscard]] bool wants_default_config(const CommandLine& line);

}  // namespace acc::launcher
