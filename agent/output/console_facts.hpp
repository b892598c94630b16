#pragma once

#include <cstdint>

namespace acc::agent {

/// 0: unknown.
struct WindowSize {
  std::uint16_t columns = 0;
  std::uint16_t lines = 0;
};

/// What our own stdout and stderr are.
struct ConsoleFacts {
  bool out_is_tty = false;
  bool err_is_tty = false;
  bool same_target = false;  ///< fd 1 and fd 2 lead to the same file, pipe or terminal
  bool journal_out = false;  ///< JOURNAL_STREAM names our stdout: systemd reads it
  bool journal_err = false;  ///< the same for stderr; often this one only: `acc-launch … > out.log`
  bool no_color = false;     ///< NO_COLOR is set, or TERM is dumb
  WindowSize window{};       ///< of the terminal, if one of them is one
};

/// Of descriptors 1 and 2 and of the environment of this process.
ConsoleFacts detect_console();
/// Of the first of the two that is a terminal.
WindowSize window_size(int out, int err);

}  // namespace acc::agent
