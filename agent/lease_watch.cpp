#include "agent/lease_watch.hpp"

#include "agent/containment.hpp"
#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "common/duration.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace acc::agent {

namespace {

using std::chrono::nanoseconds;

// While something still lives, its children may come up to the agent at any moment …
constexpr nanoseconds kNextLook{std::chrono::milliseconds{1}};
// (but not for ever: it may be beyond SIGKILL's reach)
constexpr nanoseconds kHunt{std::chrono::seconds{2}};
// … and when nothing does, the agent may wake up in the middle of a start: the child looks at the
// lease itself, so this is the second net.
constexpr nanoseconds kSecondNet{std::chrono::milliseconds{100}};

std::int64_t now_ns() {
  return std::chrono::duration_cast<nanoseconds>(boot_now().time_since_epoch()).count();
}

// Says on the board that processes are being looked for, so that an agent with a new lease waits
// before it starts new ones: one of the two always sees the other.
class Look {
 public:
  explicit Look(GuardianBoard& board) : board_{board} { board_.lease_killing = true; }
  ~Look() { board_.lease_killing = false; }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

 private:
  GuardianBoard& board_;
};

struct Descendant {
  pid_t pid;
  pid_t parent;
};

// Through a pidfd and after a second look at the parent, so that it can't hit a process that got
// the number meanwhile. A zombie gets it too: other threads of it may go on.
// @return whether it lived.
bool kill_if_same(const Descendant& process, pid_t agent) {
  const UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U))};
  const auto seen = read_process_stat(process.pid);
  const bool is_same = seen.parent == process.parent || seen.parent == agent;
  if (is_same && pidfd) ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0U);
  if (is_same && !pidfd) ::kill(process.pid, SIGKILL);
  return seen.state != 'Z' && seen.state != 'X';  // one that moved is met again in the next look
}

}  // namespace

bool LeaseWatch::has_lease() const { return board_ != nullptr && board_->lease_ends_ns != 0; }

std::optional<nanoseconds> LeaseWatch::may_sleep() const {
  if (!has_lease()) return std::nullopt;
  const std::int64_t now = now_ns();
  if (over_ != 0) return found_living_ && now < hunt_until_ ? kNextLook : kSecondNet;
  const std::int64_t left = board_->lease_ends_ns - now;
  return nanoseconds{left > 0 ? left : 0};
}

LeaseState LeaseWatch::judge() const {
  LeaseTerms terms;
  terms.ends_ns = board_->lease_ends_ns;  // first: it is written last
  terms.ahead_ns = board_->lease_ahead_ns;
  return judge_lease(terms, read_clocks());
}

// Costs nothing until the clock is set. Suspended machines set it when they come back.
void LeaseWatch::watch_clock() {
  if (!clock_fd_)
    clock_fd_ = UniqueFd{::timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK)};
  std::uint64_t ignored = 0;
  [[maybe_unused]] const auto n = ::read(clock_fd_.get(), &ignored, sizeof ignored);
  itimerspec never{};
  never.it_value.tv_sec = 8'000'000'000;  // in 2223
  ::timerfd_settime(clock_fd_.get(), TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, nullptr);
}

// Unless the agent has moved it meanwhile.
void LeaseWatch::shorten(std::int64_t ends_ns) {
  std::int64_t before = board_->lease_ends_ns;
  if (ends_ns < before) board_->lease_ends_ns.compare_exchange_strong(before, ends_ns);
}

void LeaseWatch::timer_ended() {
  if (!has_lease() || !board_->lease_in_use || board_->lease_is_new) return;
  is_timer_lost_ = judge() != LeaseState::over;
  has_killed_ = true;
  shorten(now_ns());
}

void LeaseWatch::check() {
  if (!has_lease()) {
    over_ = 0;
    return;
  }
  watch_clock();
  const Look look{*board_};
  const std::int64_t ends = board_->lease_ends_ns;
  if (ends == 0) return;  // dropped just now
  const LeaseState state = judge();
  if (state == LeaseState::doubted) {
    // The agent asks the coordinator meanwhile; what that confirms is a new lease.
    const nanoseconds patience = confirmation_of(Millis{board_->lease_length_ms.load()});
    is_doubted_ = true;
    board_->lease_ahead_ns = nanoseconds{read_clocks().ahead()}.count();
    shorten(now_ns() + patience.count());
  }
  if (state != LeaseState::over) {
    over_ = 0;
    return;
  }
  if (over_ != ends) begin_killing(ends);
  // Its dead may be zombies before the walk comes by: they count all the same.
  const bool had_some = kill_cgroup();
  found_living_ = kill_descendants();
  has_killed_ = has_killed_ || had_some || found_living_;
  if (has_killed_ && !has_told_) tell();
  has_killed_ = has_killed_ && !has_told_;
}

void LeaseWatch::begin_killing(std::int64_t ends) {
  over_ = ends;
  hunt_until_ = now_ns() + kHunt.count();
  has_told_ = false;
  // Before the first death, so that the agent takes it for what it is.
  board_->lease_fired = true;
}

// At once and for all, also for those that fork faster than we look. Where it isn't there (before
// Linux 5.14) the walk has to do.
bool LeaseWatch::kill_cgroup() const {
  if (!board_->has_cgroup) return false;
  const std::string folder = board_->cgroup;
  // A kill marks the cgroup (see Containment::prepare_round), so not without need.
  if (read_small_file(folder + "/cgroup.procs").empty()) return false;
  write_small_file(folder + "/cgroup.kill", "1");
  return true;
}

// Parents first, but each one's children are noted before it dies: afterwards they are the agent's,
// where the next look finds those that were born meanwhile.
bool LeaseWatch::kill_descendants() {
  bool found = false;
  std::vector<Descendant> found_so_far;
  const auto note_children = [&](pid_t parent) {
    for (const pid_t child : children_of(parent)) found_so_far.push_back({child, parent});
  };
  note_children(agent_);
  for (std::size_t i = 0; i < found_so_far.size(); ++i) {
    const Descendant process = found_so_far[i];  // by value: the list grows
    note_children(process.pid);
    found = kill_if_same(process, agent_) || found;
  }
  return found;
}

void LeaseWatch::tell() {
  // A terminal or pipe that is full must not block us: the message is written at a later check.
  pollfd console{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&console, 1, 0) == 0) return;
  has_told_ = true;
  const std::string why =
      std::exchange(is_timer_lost_, false) ? "the process that ends it (acc:lease) was killed"
      : std::exchange(is_doubted_, false)  ? "the clocks of this machine may have stood still, and "
                                             "the coordinator did not confirm it"
                                           : "no contact with the job's coordinator for " +
                                                describe(Millis{board_->lease_length_ms.load()});
  const std::string text = "acc-launch: lease over: " + why + "; the workers of this node (" +
                           host_name() + ") were killed\n";
  [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace acc::agent
