#pragma once

#include "agent/job_plan.hpp"
#include "common/error.hpp"

#include <optional>
#include <string>
#include <vector>

/// The remote side of a job that one command runs on several hosts: acc-launch --life_line FD reads
/// orders from FD (fanout/orders.hpp), and ends when it closes.
namespace acc::agent {

/// What the life line says before anything is checked.
struct LifeLineStart {
  LifeLine line;
  std::string folder;               ///< empty: stay
  std::vector<Variable> variables;  ///< of --env
};

/// Moves `fd` out of the way of the standard descriptors, leaving /dev/null in its place, so that
/// nothing that is started inherits it. Once for a descriptor. @return the new one
Result<int> take_descriptor(int fd);

/// Reads up to the order to prepare. Blocks for 30 s at most.
Result<LifeLineStart> read_life_line(int fd);

/// Reports that this host is prepared, and waits for the order to start. @return an exit code if it
/// doesn't come: the line is closed, or a signal came first.
[[nodiscard]] std::optional<int> await_go(const LifeLine& line);

/// The last word on standard output: the exit code, also where the transport doesn't pass it on.
void tell_end(const LifeLine& line, int exit_code);

}  // namespace acc::agent
