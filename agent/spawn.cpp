#include "agent/spawn.hpp"

#include "agent/pmi_session.hpp"
#include "agent/spawn_child.hpp"
#include "common/signals_blocked.hpp"

#include <fcntl.h>
#include <linux/sched.h>  // clone_args, CLONE_INTO_CGROUP
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

namespace acc::agent {

CStringArray::CStringArray(std::vector<std::string> strings) : strings_{std::move(strings)} {
  pointers_.clear();
  pointers_.reserve(strings_.size() + 1);
  for (auto& s : strings_) pointers_.push_back(s.data());
  pointers_.push_back(nullptr);
}

namespace {

// Of a child: a stack, of which it needs less than 1 KiB, and above it, on the same page, its slot.
constexpr std::size_t kBlock = std::size_t{16} << 10U;
constexpr std::size_t kStack = kBlock - 256;
constexpr std::size_t kGates = 64;  // bytes after the last block

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
  ignored.push_back(0);
  return ignored;
}

// Above 3, which is a child's extra one.
UniqueFd low_copy(int fd) {
  constexpr int kLowest = 4;
  return UniqueFd{fd >= 0 ? ::fcntl(fd, F_DUPFD_CLOEXEC, kLowest) : -1};
}

}  // namespace

// ---- the spawner ----

Spawner::Spawner()
    : ignored_signals_{ignored_signals()}, dev_null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)} {
  // Linux before 5.9, and containers with an older seccomp profile, refuse it: then a child copies
  // all descriptors, as it always did.
  if (::syscall(SYS_close_range, ~0U, ~0U, 0) != 0) return;
  constexpr std::size_t kCounters = 4;
  constexpr rlim_t kPlenty = 256;
  rlimit limit{};
  const bool has_plenty = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= kPlenty;
  open_counters(has_plenty ? kCounters : 1);
}

void Spawner::open_counters(std::size_t count) {
  counters_.resize(count);
  int highest = -1;
  for (auto& counter : counters_) {
    for (auto& fd : counter) {
      fd = low_copy(dev_null_.get());
      if (!fd) return counters_.clear();
      highest = std::max(highest, fd.get());
    }
  }
  first_foreign_fd_ = highest + 1;
}

static_assert(pmi::kWorkerFd == kExtraFd);

void Spawner::fill(ChildSlot& slot, const SpawnRequest& request, int alive_fd,
                   std::size_t counter) {
  slot.path = request.path;
  slot.argv = request.argv;
  slot.envp = request.envp;
  slot.reset_signals = ignored_signals_.data();
  slot.ignored_signals = request.ignored_signals;
  slot.nofile = child_nofile_ ? &*child_nofile_ : nullptr;
  if (request.cpus != nullptr && !request.cpus->empty()) {
    slot.cpus = request.cpus->data();
    slot.cpus_bytes = request.cpus->size() * sizeof(unsigned long);
  }
  slot.lease_ends_ns = lease_ends_ns_;
  slot.agent = ::getpid();
  slot.first_foreign_fd = first_foreign_fd_;
  const int given[kHandedOver] = {request.stdin_fd, request.stdout_fd,   request.stderr_fd,
                                  request.pmi_fd,   request.terminal_fd, alive_fd};
  int handed[kHandedOver];
  for (std::size_t i = 0; i < kHandedOver; ++i) {
    handed[i] = given[i];
    if (!shares_descriptors()) continue;
    // A descriptor that this child is not given must not be the previous child's.
    const int place = counters_[counter][i].get();
    ::dup3(given[i] >= 0 ? given[i] : dev_null_.get(), place, O_CLOEXEC);
    if (given[i] >= 0) handed[i] = place;
  }
  slot.stdin_fd = handed[0];
  slot.stdout_fd = handed[1];
  slot.stderr_fd = handed[2];
  slot.extra_fd = handed[3];
  slot.terminal_fd = handed[4];
}

void Spawner::empty_counters() {
  for (const auto& counter : counters_) {
    for (const auto& fd : counter) ::dup3(dev_null_.get(), fd.get(), O_CLOEXEC);
  }
}

std::variant<Spawned, SpawnFailure> Spawner::operator()(const SpawnRequest& request) {
  HeldChildren one{*this, 1};
  auto result = one.add(request);
  if (std::holds_alternative<SpawnFailure>(result)) return result;
  constexpr std::chrono::nanoseconds kWithoutEnd{-1};
  auto failure = one.try_first(kWithoutEnd);
  if (const auto failed = one.settle()) failure = failed->failure;
  if (failure) {
    ::waitpid(std::get<Spawned>(result).pid, nullptr, 0);  // it has called _exit: no wait in fact
    return *failure;
  }
  return result;
}

// ---- the children of a round ----

HeldChildren::HeldChildren(Spawner& spawner, std::size_t capacity)
    : spawner_{spawner}, capacity_{capacity} {
  static_assert(sizeof(ChildSlot) <= kBlock - kStack);
  memory_ = ::mmap(nullptr, kGates + capacity_ * kBlock, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {  // add() says so
    memory_ = nullptr;
    return;
  }
  gates_ = new (static_cast<char*>(memory_) + capacity_ * kBlock) Gate[2];
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;  // all_left() still knows
  left_.reset(ends[0]);
  const UniqueFd write_end{ends[1]};
  alive_ = low_copy(write_end.get());
  if (!alive_) left_.reset();  // its end of file would mean nothing
}

HeldChildren::~HeldChildren() {
  spawner_.empty_counters();
  // One that still is on its way to exec keeps its stack.
  if (memory_ != nullptr && all_left()) ::munmap(memory_, kGates + capacity_ * kBlock);
}

ChildSlot& HeldChildren::slot(std::size_t index) const {
  return *reinterpret_cast<ChildSlot*>(static_cast<char*>(memory_) + index * kBlock + kStack);
}

long HeldChildren::clone_child(ChildSlot& child, int cgroup_fd, int& pidfd) const {
  const int shared = spawner_.shares_descriptors() ? CLONE_FILES : 0;
  const int flags = CLONE_VM | CLONE_PIDFD | CLONE_CHILD_CLEARTID | shared;
  clone_args arguments{};
  arguments.flags = static_cast<std::uint64_t>(flags);
  arguments.exit_signal = SIGCHLD;
  arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  arguments.child_tid = reinterpret_cast<std::uintptr_t>(&child.state);
  arguments.stack = reinterpret_cast<std::uintptr_t>(&child) - kStack;
  arguments.stack_size = kStack;
  if (cgroup_fd >= 0) {
    // Not a write to cgroup.procs: that waits for an RCU grace period (16 ms measured for the first
    // one).
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<std::uint64_t>(cgroup_fd);
  }
  const long pid = clone3_onto_stack(&arguments, &child_main, &child);
  if (pid != -ENOSYS && (pid != -EPERM || cgroup_fd >= 0)) return pid;
  // Containers with an older seccomp profile refuse clone3 in order to get the older call.
  const int old_style =
      ::clone(&child_main, &child, flags | SIGCHLD, &child, &pidfd, nullptr, &child.state);
  return old_style < 0 ? -errno : old_style;
}

std::variant<Spawned, SpawnFailure> HeldChildren::add(const SpawnRequest& request) {
  if (memory_ == nullptr) return SpawnFailure{ENOMEM, "mmap"};
  ChildSlot& child = *new (&slot(count_)) ChildSlot{};
  // Those that are still being made take what they need from our table of descriptors.
  const std::size_t counters = std::max<std::size_t>(1, spawner_.counters_.size());
  if (spawner_.shares_descriptors() && count_ >= counters) await_made(count_ - counters);
  spawner_.fill(child, request, alive_.get(), count_ % counters);
  child.gate = &gates_[count_ == 0 ? 0 : 1];
  child.state = in_making;
  int pidfd = -1;
  long pid = -1;
  {
    const AllSignalsBlocked blocked;  // no handler may run in the child on our memory
    pid = clone_child(child, request.cgroup_fd, pidfd);
  }
  if (pid < 0) {
    child.state = gone;
    return SpawnFailure{static_cast<int>(-pid), "clone"};
  }
  ++count_;
  return Spawned{static_cast<pid_t>(pid), UniqueFd{pidfd}};
}

void HeldChildren::await_made(std::size_t index) const {
  ChildSlot& child = slot(index);
  while (__atomic_load_n(&child.state, __ATOMIC_SEQ_CST) == in_making)
    await_change(&child.state, in_making, -1);
}

std::optional<FailedChild> HeldChildren::settle() {
  for (std::size_t i = 0; i < count_; ++i) {
    await_made(i);
    if (const auto failure = failure_of(i)) return FailedChild{i, *failure};
  }
  return std::nullopt;
}

std::optional<SpawnFailure> HeldChildren::try_first(std::chrono::nanoseconds patience) {
  if (count_ == 0) return std::nullopt;
  ChildSlot& first = slot(0);
  await_made(0);
  __atomic_store_n(&gates_[0].is_open, 1, __ATOMIC_SEQ_CST);
  wake_at(gates_[0], 1);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (__atomic_load_n(&first.state, __ATOMIC_SEQ_CST) == held) {
    const std::chrono::nanoseconds left = end - std::chrono::steady_clock::now();
    if (patience.count() >= 0 && left.count() <= 0) break;
    await_change(&first.state, held, patience.count() < 0 ? -1 : left.count());
  }
  return failure_of(0);
}

bool HeldChildren::release_some() {
  constexpr int kAtOnce = 256;
  __atomic_store_n(&gates_[1].is_open, 1, __ATOMIC_SEQ_CST);
  return wake_at(gates_[1], kAtOnce) < kAtOnce;
}

std::optional<SpawnFailure> HeldChildren::failure_of(std::size_t index) const {
  if (index >= count_) return std::nullopt;
  const ChildSlot& child = slot(index);
  if (__atomic_load_n(&child.state, __ATOMIC_SEQ_CST) != gone || child.errnum == 0)
    return std::nullopt;
  return SpawnFailure{child.errnum, child.step};
}

bool HeldChildren::all_left() const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (__atomic_load_n(&slot(i).state, __ATOMIC_SEQ_CST) != gone) return false;
  }
  return true;
}

int HeldChildren::left_fd() {
  spawner_.empty_counters();
  alive_.reset();
  return left_.get();
}

}  // namespace acc::agent
