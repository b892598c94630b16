#include "agent/spawn.hpp"

#include "agent/pmi_server.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>  // clone_args, CLONE_INTO_CGROUP
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <new>

namespace acc::agent {

CStringArray::CStringArray(std::vector<std::string> strings) : strings_{std::move(strings)} {
  pointers_.clear();
  pointers_.reserve(strings_.size() + 1);
  for (auto& s : strings_) pointers_.push_back(s.data());
  pointers_.push_back(nullptr);
}

namespace {

constexpr std::size_t kStackSize = std::size_t{64} << 10U;  // the child needs less than 1 KiB of it

// Shared by parent and child (CLONE_VM); the parent sleeps until the child has called exec or
// _exit.
struct Handoff {
  const SpawnRequest* request;
  const std::vector<int>* ignored_signals;
  const rlimit* nofile;
  const std::atomic<std::int64_t>* lease_ends_ns;
  pid_t agent;
  SpawnFailure failure;
};

// dup2 leaves FD_CLOEXEC off on the copy, but does nothing when both are the same: then it must be
// cleared.
bool place(int from, int to) {
  if (from < 0) return true;
  if (from == to) return ::fcntl(to, F_SETFD, 0) == 0;
  return ::dup2(from, to) == to;
}

// Everything from `first` on closes at exec. Containers with an older seccomp profile, and kernels
// before 5.11, refuse close_range.
void close_from(int first) {
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, CLOSE_RANGE_CLOEXEC) == 0)
    return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(limit.rlim_cur < 65536 ? limit.rlim_cur : 65536);
  for (int fd = first; fd < end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// clock_gettime and not the steady_clock built on it: the former is on the list of what a child may
// call.
bool is_lease_over(const std::atomic<std::int64_t>* ends_ns) {
  const std::int64_t ends = ends_ns != nullptr ? ends_ns->load() : 0;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return ends != 0 && now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec >= ends;
}

// Runs in the child, on its own stack but in the parent's memory: async-signal-safe calls only,
// nothing allocated.
int child_main(void* argument) {
  auto& handoff = *static_cast<Handoff*>(argument);
  const auto& request = *handoff.request;
  const auto fail = [&](const char* step) {
    handoff.failure = {errno, step};
    ::_exit(127);
  };

  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int signo : *handoff.ignored_signals) ::sigaction(signo, &standard, nullptr);
  if (::setpgid(0, 0) != 0) fail("setpgid");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl(PR_SET_PDEATHSIG)");
  if (::getppid() != handoff.agent) ::_exit(127);  // the agent died before prctl took effect
  // SIGTTOU is blocked here, so a background process may hand the terminal over.
  if (request.terminal_fd >= 0) ::tcsetpgrp(request.terminal_fd, ::getpid());
  if (!place(request.stdin_fd, 0) || !place(request.stdout_fd, 1) || !place(request.stderr_fd, 2))
    fail("dup2");
  if (!place(request.pmi_fd, kPmiFd)) fail("dup2");
  close_from(request.pmi_fd >= 0 ? kPmiFd + 1 : STDERR_FILENO + 1);
  if (handoff.nofile != nullptr) ::setrlimit(RLIMIT_NOFILE, handoff.nofile);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (is_lease_over(handoff.lease_ends_ns)) {
    errno = ETIME;
    fail(kLeaseStep);
  }
  ::execve(request.path, request.argv, request.envp);
  fail("exec");
  return 127;
}

// clone3 has no wrapper in glibc, and a child that shares our memory needs a stack of its own from
// its first instruction on: so the call, the test and the jump to `entry` stand in one piece of
// assembly.
long clone3_onto_stack(clone_args* arguments, int (*entry)(void*), void* argument) {
#if defined(__x86_64__)
  long result = SYS_clone3;
  register auto entry_register asm("r12") = entry;
  register auto argument_register asm("r13") = argument;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"  // the outermost frame: unwinders stop here
      "mov %%r13, %%rdi\n\t"
      "call *%%r12\n\t"
      "ud2\n"
      "1:"
      : "+a"(result)
      : "D"(arguments), "S"(sizeof *arguments), "r"(entry_register), "r"(argument_register)
      : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long x0 asm("x0") = reinterpret_cast<long>(arguments);
  register long x1 asm("x1") = sizeof *arguments;
  register long x8 asm("x8") = SYS_clone3;
  register auto entry_register asm("x20") = entry;
  register auto argument_register asm("x21") = argument;
  asm volatile(
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, 0\n\t"
      "mov x0, x21\n\t"
      "blr x20\n\t"
      "brk 1\n"
      "1:"
      : "+r"(x0)
      : "r"(x1), "r"(x8), "r"(entry_register), "r"(argument_register)
      : "x30", "memory", "cc");
  return x0;
#else
#error "clone3_onto_stack: write it for this processor"
#endif
}

// What a child must put back to the default. Handlers go away by exec; SIGHUP stays ignored under
// nohup.
std::vector<int> ignored_signals() {
  std::vector<int> ignored;
  for (int signo = 1; signo < NSIG; ++signo) {
    struct sigaction action {};
    if (signo == SIGHUP || ::sigaction(signo, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN) ignored.push_back(signo);
  }
  return ignored;
}

}  // namespace

Spawner::Spawner() : ignored_signals_{ignored_signals()} {
  stack_ = ::mmap(nullptr, kStackSize, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc{};
}

Spawner::~Spawner() { ::munmap(stack_, kStackSize); }

std::variant<Spawned, SpawnFailure> Spawner::operator()(const SpawnRequest& request) {
  Handoff handoff{&request,       &ignored_signals_, child_nofile_ ? &*child_nofile_ : nullptr,
                  lease_ends_ns_, ::getpid(),        {}};
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler may run in the child on our memory
  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
  arguments.exit_signal = SIGCHLD;
  arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  arguments.stack = reinterpret_cast<std::uintptr_t>(stack_);
  arguments.stack_size = kStackSize;
  if (request.cgroup_fd >= 0) {
    // Not a write to cgroup.procs: that waits for an RCU grace period (16 ms measured for the first
    // one).
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<std::uint64_t>(request.cgroup_fd);
  }
  long pid = clone3_onto_stack(&arguments, &child_main, &handoff);
  if (pid == -ENOSYS || (pid == -EPERM && request.cgroup_fd < 0)) {
    // Containers with an older seccomp profile refuse clone3 in order to get the older call.
    auto* const top = static_cast<char*>(stack_) + kStackSize;
    pid =
        ::clone(&child_main, top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &handoff, &pidfd);
    if (pid < 0) pid = -errno;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return SpawnFailure{static_cast<int>(-pid), "clone"};
  Spawned spawned{static_cast<pid_t>(pid), UniqueFd{pidfd}};
  if (handoff.failure.errnum == 0) return spawned;
  ::waitpid(spawned.pid, nullptr, 0);  // it has called _exit: no wait in fact
  return handoff.failure;
}

}  // namespace acc::agent
