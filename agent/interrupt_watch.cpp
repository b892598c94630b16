#include "agent/interrupt_watch.hpp"

#include "common/unique_fd.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace acc::agent {

namespace {

// Its ends of pipes must not keep others from seeing their end.
void close_all() {
  if (::syscall(SYS_close_range, 0U, ~0U, 0U) == 0) return;
  constexpr int kEnd = 1024;
  for (int fd = 0; fd < kEnd; ++fd) ::close(fd);
}

constexpr int kAnswersMs = 200;  // a process that only has to be scheduled
// Pending signals are taken by their numbers, and SIGINT has a lower one.
constexpr int kEnough = SIGTERM;
static_assert(SIGINT < kEnough);

[[noreturn]] void watch(pid_t parent, pid_t group, pid_t agent, GuardianBoard& board) {
  ::prctl(PR_SET_NAME, "acc:ctrl-c");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || ::setpgid(0, group) != 0) ::_exit(0);  // one of them is gone
  sigset_t all;
  ::sigfillset(&all);  // what the group is sent, Ctrl-Z too, is none of its business
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  close_all();
  sigset_t awaited;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGINT);
  ::sigaddset(&awaited, kEnough);
  for (;;) {
    siginfo_t info{};
    const int signo = ::sigwaitinfo(&awaited, &info);
    if (signo == kEnough && info.si_pid == parent) ::_exit(0);  // not one for the whole group
    // From the kernel, that is a key; from a process it is none.
    if (signo != SIGINT || info.si_code != SI_KERNEL) continue;
    board.worker_was_interrupted = true;
    if (!board.agent_is_gone) ::kill(agent, terminal_interrupt_signal());
  }
}

}  // namespace

pid_t start_interrupt_watch(pid_t group, pid_t agent, GuardianBoard& board) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) watch(parent, group, agent, board);
  return pid;
}

void end_interrupt_watch(pid_t watch) {
  const UniqueFd end{static_cast<int>(::syscall(SYS_pidfd_open, watch, 0U))};
  ::kill(watch, kEnough);
  ::kill(watch, SIGCONT);  // stopped with its group
  pollfd fd{end.get(), POLLIN, 0};
  if (end) ::poll(&fd, 1, kAnswersMs);
  ::kill(watch, SIGKILL);
  ::waitpid(watch, nullptr, 0);
}

}  // namespace acc::agent
