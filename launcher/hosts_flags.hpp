#pragma once

#include "common/error.hpp"
#include "launcher/cli.hpp"
#include "launcher/job_spec.hpp"

/// What a flag means beside --hosts: whether it needs them, can't be given with them, or is passed
/// on to each; pure.
namespace acc::launcher {

[[nodiscard]] bool is_on_hosts(const CommandLine& line);

/// Flags that only mean something with hosts, given without.
[[nodiscard]] Complaints check_without_hosts(const CommandLine& line);

/// Flags that mean one machine, given with hosts.
[[nodiscard]] Complaints check_with_hosts(const CommandLine& line, const JobSpec& spec);

/// Whether the acc-launch of each host gets the flag as it was given here.
[[nodiscard]] bool is_passed_on(Key key);

}  // namespace acc::launcher
