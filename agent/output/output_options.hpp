#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace acc::agent {

/// Where the console is; tests put pipes and pseudo-terminals here.
struct OutputOptions {
  int out = 1;
  int err = 2;
  std::string journal_socket = "/run/systemd/journal/socket";
  std::size_t console_queue_bytes = std::size_t{4}
                                    << 20U;  ///< held for a console that is slower than the workers
  std::size_t files_queue_bytes = std::size_t{8} << 20U;  ///< held for all log files together
};

/// How long the end of the output is waited for.
struct FlushLimits {
  Millis patience;  ///< a destination that takes nothing for so long is given up
  Millis cap;       ///< and all are after so long, also those that take some
};
/// Asked again while waiting: a Ctrl-C may shorten the limits.
using AskFlushLimits = std::function<FlushLimits()>;

}  // namespace acc::agent
