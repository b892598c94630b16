#include "agent/terminal.hpp"

#include <unistd.h>

#include <csignal>

// SIGTTOU is blocked since the guardian's start, so that a background process may move the
// terminal.
namespace acc::agent {

Terminal::Terminal(pid_t guardian) : guardian_{guardian} {}

pid_t Terminal::guardian_group() const { return guardian_ > 0 ? ::getpgid(guardian_) : -1; }

bool Terminal::can_lend() const {
  const pid_t group = guardian_group();
  return group > 0 && ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == group;
}

bool Terminal::is_held_by(pid_t group) const {
  return group > 0 && ::tcgetpgrp(STDIN_FILENO) == group;
}

void Terminal::lend_to(pid_t group) const {
  if (group > 0) ::tcsetpgrp(STDIN_FILENO, group);
}

void Terminal::take_back_from(pid_t group) const {
  const pid_t to = guardian_group();
  if (to > 0 && is_held_by(group)) ::tcsetpgrp(STDIN_FILENO, to);
}

void Terminal::suspend_job() const {
  if (const pid_t group = guardian_group(); group > 0) ::killpg(group, SIGTSTP);
}

}  // namespace acc::agent
