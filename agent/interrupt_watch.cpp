#include "agent/interrupt_watch.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
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

[[noreturn]] void watch(pid_t parent, pid_t group, pid_t agent) {
  ::prctl(PR_SET_NAME, "acc:ctrl-c");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || ::setpgid(0, group) != 0) ::_exit(0);  // one of them is gone
  sigset_t all;
  ::sigfillset(&all);  // what the group is sent, Ctrl-Z too, is none of its business
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  close_all();
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  for (;;) {
    siginfo_t info{};
    // From the kernel, that is a key; from a process it is none.
    if (::sigwaitinfo(&interrupt, &info) != SIGINT || info.si_code != SI_KERNEL) continue;
    sigval value{};
    value.sival_int = kTerminalInterrupt;
    ::sigqueue(agent, SIGINT, value);
  }
}

}  // namespace

pid_t start_interrupt_watch(pid_t group, pid_t agent) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) watch(parent, group, agent);
  return pid;
}

}  // namespace acc::agent
