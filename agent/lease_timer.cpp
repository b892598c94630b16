#include "agent/lease_timer.hpp"

#include "common/clocks.hpp"
#include "common/log.hpp"
#include "rendezvous/planted.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <string>

namespace acc::agent {

namespace {

using std::chrono::nanoseconds;

/// Beyond the end of the lease, so that a guardian that runs is first: it can say why. A
/// coordinator waits for longer (Membership::lease_slack).
constexpr nanoseconds kAfterGuardian{std::chrono::milliseconds{50}};
constexpr nanoseconds kShortestSleep{std::chrono::milliseconds{10}};
constexpr int kHighestPriority = -20;
constexpr int kLookAgain = SIGUSR1;

std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

timespec to_timespec(nanoseconds time) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  return {time.count() / kSecond, time.count() % kSecond};
}

nanoseconds left_until(std::int64_t ends_ns) {
  return nanoseconds{ends_ns} - nanoseconds{boot_now().time_since_epoch()};
}

// All but the pipe: a descriptor that stays open here would delay the end of file of its other end.
void close_all_but(int kept) {
  const auto kept_fd = static_cast<unsigned>(kept);
  if (kept_fd > 0) ::syscall(SYS_close_range, 0U, kept_fd - 1, 0U);
  ::syscall(SYS_close_range, kept_fd + 1, ~0U, 0U);
}

// Until its timer kills it. It looks for renewals each time a third of what is left has passed: few
// wake-ups, and a lease that is renewed is never over here first, on a busy machine neither.
[[noreturn]] void run_timer(GuardianBoard& board, pid_t guardian, int write_end) {
  ::prctl(PR_SET_NAME, "acc:lease");
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guardian) ::_exit(1);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  close_all_but(write_end);
  sigevent kill_us{};
  kill_us.sigev_notify = SIGEV_SIGNAL;
  kill_us.sigev_signo = SIGKILL;
  timer_t timer{};
  if (::timer_create(CLOCK_BOOTTIME, &kill_us, &timer) != 0) {
    ::_exit(errno);
  }
  for (;;) {
    const std::int64_t ends = board.lease_ends_ns;
    const nanoseconds left = left_until(ends);
    // A length and no moment: the clock may be another one than the kernel's (a time namespace).
    const itimerspec end{{}, to_timespec(std::max(left + kAfterGuardian, nanoseconds{1}))};
    if (::timer_settime(timer, 0, &end, nullptr) != 0) ::_exit(errno);
    board.lease_timer_ends_ns = ends;
    board.lease_timer_pid = ::getpid();
    const timespec pause = to_timespec(std::max(left / 3, kShortestSleep));
    ::sigtimedwait(&all, nullptr, &pause);
  }
}

}  // namespace

// ---- the guardian's half ----

void LeaseTimer::ensure() {
  if (rendezvous::planted::no_lease_timer) return;
  if (board_ == nullptr || pipe_fd_ < 0 || board_->lease_timer_failed != 0) return;
  const std::int64_t ends = board_->lease_ends_ns;
  if (!board_->lease_in_use || left_until(ends) <= nanoseconds{0}) return;
  if (pid_ == 0) return start();
  if (ends != board_->lease_timer_ends_ns) ::kill(pid_, kLookAgain);
}

void LeaseTimer::start() {
  // The workers' last line of defence, and ours: both should wake up first.
  board_->has_priority = ::setpriority(PRIO_PROCESS, 0, kHighestPriority) == 0;
  const UniqueFd write_end{::open(path_of(pipe_fd_).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)};
  const pid_t guardian = ::getpid();
  const pid_t pid = write_end ? ::fork() : -1;
  if (pid < 0) {
    board_->lease_timer_failed = errno;
    return;
  }
  if (pid == 0) run_timer(*board_, guardian, write_end.get());
  pid_ = pid;
}

bool LeaseTimer::reaped(pid_t pid, int status) {
  if (pid == 0 || pid != pid_) return false;
  pid_ = 0;
  const bool was_armed = board_->lease_timer_pid.exchange(0) != 0;
  // Not before all its ends of the pipe are closed: from here on workers may do without it.
  if (!was_armed) board_->lease_timer_failed = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  return was_armed;
}

void LeaseTimer::end() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

// ---- the agent's half ----

void LeaseBoundGroups::add(pid_t group) {
  const auto* board = guardian_.board;
  // Without a write end the close of any read end signals those that are left.
  if (board == nullptr || !board->lease_in_use || board->lease_timer_pid == 0) return;
  // Opened anew, as the owner belongs to the open file. It gets what is asked for only as root or
  // as the same user: workers are.
  UniqueFd end{::open(path_of(guardian_.pipe_fd).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  const f_owner_ex owner{F_OWNER_PGRP, group};
  if (!end || ::fcntl(end.get(), F_SETSIG, SIGKILL) != 0 ||
      ::fcntl(end.get(), F_SETOWN_EX, &owner) != 0 ||
      ::fcntl(end.get(), F_SETFL, O_ASYNC | O_NONBLOCK) != 0) {
    log::info("not_bound_to_lease", {{"group", group}, {"errno", errno}});
    return;
  }
  ends_.push_back(std::move(end));
}

}  // namespace acc::agent
