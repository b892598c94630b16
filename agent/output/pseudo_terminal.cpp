#include "agent/output/pseudo_terminal.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace acc::agent {

std::optional<PseudoTerminal> open_pseudo_terminal(WindowSize size) {
  PseudoTerminal terminal;
  terminal.ours.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!terminal.ours || ::unlockpt(terminal.ours.get()) != 0) return std::nullopt;
  // Not by its name: another mount of devpts, in a container, would not have it.
  terminal.workers.reset(::ioctl(terminal.ours.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!terminal.workers) return std::nullopt;
  termios mode{};
  if (::tcgetattr(terminal.workers.get(), &mode) != 0) return std::nullopt;
  ::cfmakeraw(&mode);
  if (::tcsetattr(terminal.workers.get(), TCSANOW, &mode) != 0) return std::nullopt;
  const winsize window{size.lines, size.columns, 0, 0};
  ::ioctl(terminal.ours.get(), TIOCSWINSZ, &window);
  return terminal;
}

}  // namespace acc::agent
