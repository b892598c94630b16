#include "agent/spawn_child.hpp"

#include "agent/lease_terms.hpp"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <limits>

// Built without sanitizers and stack protectors: their state belongs to the agent's thread, whose
// thread-local memory this code sees.
namespace acc::agent {

namespace {

// libc's wrappers write errno, which is the agent's at the same moment.
// @return the result, or the negative errno
long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
#if defined(__x86_64__)
  long result = number;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#else
#error "call: write it for this processor"
#endif
}

template <class T>
long word(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

[[noreturn]] void fail(ChildSlot& slot, const char* step, long result) {
  slot.errnum = static_cast<int>(-result);
  slot.step = step;
  for (;;) call(SYS_exit_group, 127);
}

void require(ChildSlot& slot, const char* step, long result) {
  if (result < 0) fail(slot, step, result);
}

// dup3 refuses equal descriptors; then FD_CLOEXEC must go.
long place(int from, int to) {
  if (from < 0) return 0;
  if (from == to) return call(SYS_fcntl, to, F_SETFD, 0);
  return call(SYS_dup3, from, to, 0);
}

constexpr long kLastFd = std::numeric_limits<unsigned>::max();

// Everything from `first` on closes at exec. Containers with an older seccomp profile, and kernels
// before 5.11, refuse close_range.
void close_others(int first) {
  if (call(SYS_close_range, first, kLastFd, CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit limit{};
  call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, word(&limit));
  constexpr rlim_t kMost = 65536;
  const int end = static_cast<int>(limit.rlim_cur < kMost ? limit.rlim_cur : kMost);
  for (int fd = first; fd < end; ++fd) call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
}

void take_descriptors(ChildSlot& slot) {
  if (slot.first_foreign_fd >= 0) {
    // Copies the few below and no more: a copy of all costs each of N workers N descriptors.
    require(
        slot, "close_range",
        call(SYS_close_range, slot.first_foreign_fd, kLastFd, CLOSE_RANGE_UNSHARE));
  }
  require(slot, "dup2", place(slot.stdin_fd, 0));
  require(slot, "dup2", place(slot.stdout_fd, 1));
  require(slot, "dup2", place(slot.stderr_fd, 2));
  require(slot, "dup2", place(slot.extra_fd, kExtraFd));
  close_others(slot.extra_fd >= 0 ? kExtraFd + 1 : kExtraFd);
}

void set_actions(const int* signals, sighandler_t handler) {
  struct {
    sighandler_t handler;
    unsigned long rest[7];  // of the kernel's struct sigaction: no flags, empty mask
  } action{handler, {}};
  for (; signals != nullptr && *signals != 0; ++signals)
    call(SYS_rt_sigaction, *signals, word(&action), 0, sizeof(std::uint64_t));
}

bool is_lease_over(const std::atomic<std::int64_t>* ends_ns) {
  if (ends_ns == nullptr) return false;
  const auto ends =
      __atomic_load_n(reinterpret_cast<const std::int64_t*>(ends_ns), __ATOMIC_SEQ_CST);
  timespec now{};
  call(SYS_clock_gettime, CLOCK_BOOTTIME, word(&now));
  return ends != 0 && now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec >= ends;
}

void hold(ChildSlot& slot) {
  __atomic_store_n(&slot.state, static_cast<int>(held), __ATOMIC_SEQ_CST);
  call(SYS_futex, word(&slot.state), FUTEX_WAKE, 1);
  while (__atomic_load_n(&slot.gate->is_open, __ATOMIC_SEQ_CST) == 0)
    call(SYS_futex, word(&slot.gate->is_open), FUTEX_WAIT_PRIVATE, 0);
}

}  // namespace

int child_main(void* argument) {
  auto& slot = *static_cast<ChildSlot*>(argument);
  set_actions(slot.reset_signals, SIG_DFL);
  set_actions(slot.ignored_signals, SIG_IGN);
  require(slot, "setpgid", call(SYS_setpgid, 0, 0));
  require(slot, "prctl(PR_SET_PDEATHSIG)", call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL));
  if (call(SYS_getppid) != slot.agent) call(SYS_exit_group, 127);  // it died before that
  take_descriptors(slot);
  if (slot.nofile != nullptr) call(SYS_prlimit64, 0, RLIMIT_NOFILE, word(slot.nofile));
  if (slot.cpus != nullptr)  // best effort: the cores may have been taken from us meanwhile
    call(SYS_sched_setaffinity, 0, static_cast<long>(slot.cpus_bytes), word(slot.cpus));
  hold(slot);
  if (slot.terminal_fd >= 0) {
    // SIGTTOU is blocked here, so a background process may hand the terminal over.
    const int group = static_cast<int>(call(SYS_getpid));
    call(SYS_ioctl, slot.terminal_fd, TIOCSPGRP, word(&group));
  }
  const std::uint64_t none = 0;
  call(SYS_rt_sigprocmask, SIG_SETMASK, word(&none), 0, sizeof none);
  if (is_lease_over(slot.lease_ends_ns)) fail(slot, kLeaseStep, -ETIME);
  fail(slot, "exec", call(SYS_execve, word(slot.path), word(slot.argv), word(slot.envp)));
}

void await_change(int* state, ChildStep step, std::int64_t nanoseconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec limit{nanoseconds / kSecond, nanoseconds % kSecond};
  call(SYS_futex, word(state), FUTEX_WAIT, step, nanoseconds < 0 ? 0 : word(&limit));
}

int wake_at(Gate& gate, int count) {
  return static_cast<int>(call(SYS_futex, word(&gate.is_open), FUTEX_WAKE_PRIVATE, count));
}

}  // namespace acc::agent
