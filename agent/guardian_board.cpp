#include "agent/guardian_board.hpp"

#include "common/clocks.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace acc::agent {

namespace {

std::int64_t in_nanoseconds(Instant time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void wake(const GuardianLink& guardian) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(guardian.wake_fd, &one, sizeof one);
}

template <std::size_t N>
void copy_to(char (&place)[N], const std::string& text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(place, text.data(), length);
  place[length] = '\0';
}

// The guardian acts within milliseconds, unless it is stopped: then it must not hold us up for ever.
constexpr Millis kGuardianActs{1'000};

/// Blocks until `is_pending` is false, for kGuardianActs at most: what it reads is memory that the
/// guardian writes, whose changes can't be waited for together with its death.
template <class Pending>
void wait_for_guardian(Pending is_pending) {
  const Instant deadline = boot_now() + kGuardianActs;
  while (is_pending() && boot_now() < deadline) ::poll(nullptr, 0, 1);
}

}  // namespace

void hold_lease(const GuardianLink& guardian, Instant ends, Millis length) {
  if (guardian.board == nullptr) return;
  auto& board = *guardian.board;
  board.lease_length_ms = length.count();
  const std::int64_t ends_ns = in_nanoseconds(ends);
  board.lease_ahead_ns = std::chrono::nanoseconds{read_clocks().ahead()}.count();
  // Not a renewal.
  const bool is_new = !board.lease_in_use || board.lease_ends_ns <= in_nanoseconds(boot_now());
  board.lease_is_new = is_new;  // before the timer's end could be taken for that of this lease
  const std::int64_t before = board.lease_ends_ns.exchange(ends_ns);
  board.lease_in_use = true;
  // The timer may be about to end with the lease before.
  const auto lacks_timer = [&] {
    if (guardian.pipe_fd < 0 || board.lease_timer_failed != 0) return false;
    return board.lease_timer_pid == 0 || (is_new && board.lease_timer_ends_ns != ends_ns);
  };
  // The guardian sleeps until the moment it has read: only an earlier one needs its attention.
  if ((before == 0 || ends_ns < before || lacks_timer()) && guardian.wake_fd >= 0) wake(guardian);
  // Workers that are started now are to die with it, and not with an older one.
  if (is_new) wait_for_guardian([&] { return lacks_timer() && ends > boot_now(); });
  board.lease_is_new = false;
  // A search for processes to kill that began before this lease would kill new ones, too.
  wait_for_guardian([&] { return board.lease_killing.load(); });
}

void release_lease(const GuardianLink& guardian) {
  if (guardian.board != nullptr) guardian.board->lease_in_use = false;
}

void drop_lease(const GuardianLink& guardian) {
  if (guardian.board == nullptr || guardian.board->lease_in_use) return;
  guardian.board->lease_ends_ns = 0;
  // A search that began before would meet what is a child of ours now.
  wait_for_guardian([&] { return guardian.board->lease_killing.load(); });
}

// The kernel may have killed the workers while the guardian was frozen, and we may be awake first.
bool take_lease_end(const GuardianLink& guardian) {
  if (guardian.board == nullptr) return false;
  auto& board = *guardian.board;
  const std::int64_t ends = board.lease_ends_ns;
  const bool is_over = board.lease_in_use && ends != 0 && in_nanoseconds(boot_now()) >= ends &&
                       board.lease_taken_ns.exchange(ends) != ends;
  return board.lease_fired.exchange(false) || is_over;
}

void note_cgroup(const GuardianLink& guardian, const std::string& folder) {
  if (guardian.board == nullptr) return;
  auto& board = *guardian.board;
  board.has_cgroup = false;
  if (folder.empty() || folder.size() >= sizeof board.cgroup) return;
  std::memcpy(board.cgroup, folder.c_str(), folder.size() + 1);
  board.has_cgroup = true;
}

bool outlive(const GuardianLink& guardian) {
  if (guardian.pid == 0) return true;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return ::getppid() == guardian.pid;
}

void note_terminal(const GuardianLink& guardian, pid_t group) {
  if (guardian.board == nullptr || guardian.board->terminal_group.exchange(group) == group) return;
  wake(guardian);
}

void note_orphan_patience(const GuardianLink& guardian, Millis patience) {
  if (guardian.board != nullptr) guardian.board->orphan_patience_ms = patience.count();
}

void note_hosts(const GuardianLink& guardian) {
  if (guardian.board != nullptr) guardian.board->is_on_hosts = true;
}

void note_reported_elsewhere(const GuardianLink& guardian) {
  if (guardian.board != nullptr) guardian.board->is_reported_elsewhere = true;
}

void note_report(const GuardianLink& guardian, const std::string& path) {
  if (guardian.board == nullptr || path.size() >= sizeof guardian.board->report_file) return;
  copy_to(guardian.board->report_file, path);
}

void note_refusal(const GuardianLink& guardian, const std::string& why) {
  if (guardian.board != nullptr) copy_to(guardian.board->refusal, why);
}

void note_stopped(const GuardianLink& guardian) {
  if (guardian.board != nullptr) guardian.board->was_stopped = true;
}

void note_report_written(const GuardianLink& guardian) {
  if (guardian.board != nullptr) guardian.board->report_is_written = true;
}

}  // namespace acc::agent
