#include "agent/shell_interrupt.hpp"

#include "agent/containment.hpp"
#include "agent/process_stat.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
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
  return ShellNotice::ancestors_and_death;
}

void interrupt_ancestors_in_group() {
  const pid_t group = ::getpgrp();
  std::vector<pid_t> ancestors;
  for (pid_t pid = ::getppid(); pid > 0 && ::getpgid(pid) == group;
       pid = read_process_stat(pid).parent)
    ancestors.push_back(pid);
  // The outermost first: it must have taken its own before it sees one below it end, or make
  // waits for a child that it has reaped already, and says so.
  for (auto pid = ancestors.rbegin(); pid != ancestors.rend(); ++pid) {
    if (::kill(*pid, SIGINT) == 0) await_taken(*pid);
  }
}

static bool has_sibling_in_group() {
  const auto siblings = children_of(::getppid());
  return std::ranges::any_of(siblings, [](pid_t pid) {
    return pid != ::getpid() && ::getpgid(pid) == ::getpgrp() &&
           read_process_stat(pid).state != 'Z';
  });
}

// No event tells of the end of another process's child.
void await_pipeline() {
  constexpr int kLooks = 100;
  constexpr timespec kBetween{0, 2'000'000};
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  for (int i = 0; i < kLooks && has_sibling_in_group(); ++i) ::nanosleep(&kBetween, nullptr);
}

void die_of_interrupt() {
  ::signal(SIGINT, SIG_DFL);
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::raise(SIGINT);
  ::sigprocmask(SIG_UNBLOCK, &interrupt, nullptr);
}

}  // namespace acc::agent
