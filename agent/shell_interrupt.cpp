#include "agent/shell_interrupt.hpp"

#include "agent/containment.hpp"
#include "agent/process_stat.hpp"
#include "common/text.hpp"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace acc::agent {

namespace {

// No event tells that another process has taken a signal. One that blocks it, or is stopped, isn't
// waited for.
void await_taken(pid_t pid) {
  constexpr int kLooks = 50;
  constexpr timespec kBetween{0, 1'000'000};
  for (int i = 0; i < kLooks && has_pending_signal(pid, SIGINT); ++i)
    ::nanosleep(&kBetween, nullptr);
}

}  // namespace

ShellNotice shell_notice(int exit_code, const InterruptsSeen& seen) {
  if (exit_code != 128 + SIGINT) return ShellNotice::exit_code;
  if (seen.by_key) return ShellNotice::death;
  // A worker may use Ctrl-C for its own purposes (pdb), and the job ends by a later kill().
  if (!seen.by_key_in_workers_terminal || seen.by_process) return ShellNotice::exit_code;
  return ShellNotice::group_and_death;
}

// The outermost first.
static std::vector<pid_t> ancestors_in_group() {
  const pid_t group = ::getpgrp();
  std::vector<pid_t> ancestors;
  for (pid_t pid = ::getppid(); pid > 0 && ::getpgid(pid) == group;
       pid = read_process_stat(pid).parent)
    ancestors.push_back(pid);
  std::ranges::reverse(ancestors);
  return ancestors;
}

// It must have taken its own before it sees one below it end, or make waits for a child that it has
// reaped already, and says so.
static void interrupt_ancestors() {
  for (const pid_t pid : ancestors_in_group()) {
    if (::kill(pid, SIGINT) == 0) await_taken(pid);
  }
}

static std::vector<pid_t> others_in_group() {
  const auto ancestors = ancestors_in_group();
  std::vector<pid_t> others;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc", failed}) {
    const auto pid = parse_number<pid_t>(entry.path().filename().native());
    if (!pid || *pid == ::getpid() || ::getpgid(*pid) != ::getpgrp()) continue;
    if (std::ranges::count(ancestors, *pid) == 0) others.push_back(*pid);
  }
  return others;
}

struct PipeEnd {
  ino_t number = 0;        ///< 0: it is no pipe
  bool is_hidden = false;  ///< /proc doesn't tell: the process is another user's, as sudo
};

static PipeEnd pipe_at(pid_t pid, int fd) {
  struct stat info {};
  const auto path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  if (::stat(path.c_str(), &info) != 0) return {0, errno == EACCES};
  return {S_ISFIFO(info.st_mode) ? info.st_ino : 0, false};
}

// Those that read our output, or may, and those that read theirs. Every other reader of a pipe is
// none: make -j gives its children one that is empty.
static std::vector<pid_t> readers_among(const std::vector<pid_t>& others) {
  std::vector<pid_t> writers{::getpid()};
  for (std::size_t i = 0; i < writers.size(); ++i) {
    for (const pid_t pid : others) {
      const auto [input, is_hidden] = pipe_at(pid, STDIN_FILENO);
      const bool reads =
          is_hidden || (input != 0 && (input == pipe_at(writers[i], STDOUT_FILENO).number ||
                                       input == pipe_at(writers[i], STDERR_FILENO).number));
      if (reads && std::ranges::count(writers, pid) == 0) writers.push_back(pid);
    }
  }
  writers.erase(writers.begin());
  return writers;
}

// No event tells of the end of another process's child.
static void await_end(const std::vector<pid_t>& readers) {
  constexpr int kLooks = 500;
  constexpr timespec kBetween{0, 2'000'000};
  const auto lives = [](pid_t pid) {
    const char state = read_process_stat(pid).state;
    return state != 'Z' && state != 'X';
  };
  for (int i = 0; i < kLooks && std::ranges::any_of(readers, lives); ++i)
    ::nanosleep(&kBetween, nullptr);
}

void interrupt_group() {
  interrupt_ancestors();
  const auto others = others_in_group();
  const auto readers = readers_among(others);
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  await_end(readers);
  for (const pid_t pid : others) {
    if (std::ranges::count(readers, pid) == 0 && ::getpgid(pid) == ::getpgrp()) ::kill(pid, SIGINT);
  }
}

static bool has_noted_key = false;

void note_interrupt_key() { has_noted_key = true; }
bool had_interrupt_key() { return has_noted_key; }

void die_of_interrupt() {
  ::signal(SIGINT, SIG_DFL);
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::raise(SIGINT);
  ::sigprocmask(SIG_UNBLOCK, &interrupt, nullptr);
}

}  // namespace acc::agent
