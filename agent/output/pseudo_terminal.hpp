#pragma once

#include "agent/output/console_facts.hpp"
#include "common/unique_fd.hpp"

#include <optional>

namespace acc::agent {

/// A pseudo-terminal for the output of a worker: raw, so that the bytes come out as they were
/// written, and not the controlling terminal of any process.
struct PseudoTerminal {
  UniqueFd ours;     ///< O_NONBLOCK; read() gives EIO after the last byte
  UniqueFd workers;  ///< becomes its stdout
};

/// Nothing, and errno, where there is none left (kernel.pty.max) or /dev/ptmx is missing.
std::optional<PseudoTerminal> open_pseudo_terminal(WindowSize size);

}  // namespace acc::agent
