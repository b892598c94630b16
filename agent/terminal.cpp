#include "agent/terminal.hpp"

#include "agent/containment.hpp"
#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <initializer_list>
#include <string>
#include <vector>

// SIGTTOU is blocked since the guardian's start, so that a background process may move the
// terminal.
namespace acc::agent {

namespace {

constexpr std::size_t kMostProcesses = 256;  // looked at, of a worker

std::vector<pid_t> with_descendants(pid_t pid) {
  std::vector<pid_t> all{pid};
  for (std::size_t i = 0; i < all.size() && all.size() < kMostProcesses; ++i) {
    const auto children = children_of(all[i]);
    all.insert(all.end(), children.begin(), children.end());
  }
  return all;
}

bool is_terminal(pid_t pid, long fd) {
  struct stat mine {};
  struct stat its {};
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  return ::fstat(STDIN_FILENO, &mine) == 0 && ::stat(path.c_str(), &its) == 0 &&
         S_ISCHR(its.st_mode) && mine.st_rdev == its.st_rdev;
}

bool is_any_of(long number, std::initializer_list<long> numbers) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

bool is_read(long number) { return is_any_of(number, {SYS_read, SYS_readv}); }
bool is_select(long number) {
#ifdef SYS_select
  if (number == SYS_select) return true;
#endif
  return number == SYS_pselect6;
}
bool is_wait(long number) {
#ifdef SYS_poll
  if (is_any_of(number, {SYS_poll, SYS_epoll_wait})) return true;
#endif
  return is_select(number) || is_any_of(number, {SYS_ppoll, SYS_epoll_pwait});
}

// What the main thread of a process sleeps in: "23 0x1 0x7ffd… …" (number and arguments), "running"
// or, where the kernel doesn't tell, nothing.
bool waits_for_input(pid_t pid, bool is_line_editor) {
  const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/syscall");
  const auto words = split(text, ' ');
  if (words.size() < 2) return false;
  const auto number = parse_number<long>(words[0]);
  long first = -1;
  if (words[1].starts_with("0x"))
    std::from_chars(words[1].data() + 2, words[1].data() + words[1].size(), first, 16);
  if (!number) return false;
  if (is_read(*number)) return is_terminal(pid, first);
  // readline looks at descriptor 0 alone; others at more, and then the terminal's mode tells.
  if (is_select(*number) && first == 1) return is_terminal(pid, STDIN_FILENO);
  return is_line_editor && is_wait(*number);
}

}  // namespace

std::optional<termios> terminal_modes() {
  termios modes{};
  if (::tcgetattr(STDIN_FILENO, &modes) != 0) return std::nullopt;
  return modes;
}

void restore_terminal_modes(const std::optional<termios>& modes) {
  const auto now = terminal_modes();
  if (!modes || !now) return;
  const bool is_same = now->c_iflag == modes->c_iflag && now->c_oflag == modes->c_oflag &&
                       now->c_lflag == modes->c_lflag && now->c_cflag == modes->c_cflag;
  if (!is_same) ::tcsetattr(STDIN_FILENO, TCSANOW, &*modes);
}

Terminal::Terminal(pid_t guardian) : guardian_{guardian}, modes_{terminal_modes()} {}

void Terminal::restore_modes() const { restore_terminal_modes(modes_); }

bool Terminal::is_read_by(pid_t worker) const {
  const auto modes = terminal_modes();
  if (!modes) return false;
  const bool is_line_editor = (modes->c_lflag & ICANON) == 0;
  for (const pid_t pid : with_descendants(worker))
    if (waits_for_input(pid, is_line_editor)) return true;
  return false;
}

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
