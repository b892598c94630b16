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

/// Whether the default config file counts: not with --cpu, and not for a torchrun line.
[[nodiscard]] bool wants_default_config(const CommandLine& line);

}  // namespace acc::launcher
