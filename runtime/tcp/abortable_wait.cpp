#include "runtime/tcp/abortable_wait.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/net/sockets.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace acc::runtime::tcp {

using namespace std::chrono_literals;

namespace {

/// For the cause to arrive after a connection ended: the leaders send it within milliseconds.
constexpr auto kCauseTime = 200ms;
/// For the leader's diagnosis, which waits for the other hosts' answers.
constexpr auto kFindingsTime = 700ms;
/// Polling before sleep. Longer is better with a core for each rank, worse without.
constexpr auto kAwake = 30us;
/// How often the group is checked without a leader, which would wake the rank.
constexpr auto kPollAlone = 20ms;

}  // namespace

AbortableWait::AbortableWait(NodeSegment& node, const RankPlacement& placement,
                             std::unique_ptr<FailureDetector> control, UniqueFd connection)
    : node_{node},
      placement_{placement},
      connection_{std::move(connection)},
      detector_{std::move(control)} {}

// A program that has closed it is looked after as one without a leader.
int AbortableWait::broken_fd() {
  if (leader_gone_) return -1;
  const int fd = detector_               ? detector_->broken_fd()
                 : connection_.is_ours() ? connection_.get()
                                         : -1;
  if (fd < 0) leader_gone_ = true;
  return fd;
}

void AbortableWait::wait(ActiveCall& active, std::vector<pollfd>& waits) {
  struct Waiting {
    std::atomic<std::uint32_t>& count;
    explicit Waiting(std::atomic<std::uint32_t>& at) : count{at} { count.fetch_add(1); }
    ~Waiting() { count.fetch_sub(1); }
  };
  const shm::Peers::Blocked blocked{node_.peers(), active};
  waits.push_back({});
  for (bool ready = false; !ready;) {
    waits.back() = {broken_fd(), POLLIN, 0};
    {
      const Waiting waiting{node_.peers().mine().waits};
      int found = poll_awake(waits);
      if (found == 0) found = ::poll(waits.data(), waits.size(), poll_time(poll_until(active)));
      if (found < 0 && errno != EINTR)
        node_.fail(active, {ErrorCode::system, system_error(errno, "poll").what});
      ready = found > (waits.back().revents != 0 ? 1 : 0);
    }
    look(active, waits.back().revents);
  }
  waits.pop_back();
}

// A sleeper is woken on the sender's core, which both then share, and waking takes longer than the
// next bytes take to arrive.
int AbortableWait::poll_awake(std::vector<pollfd>& waits) {
  const auto until = Clock::now() + kAwake;
  do {
    const int found = ::poll(waits.data(), waits.size(), 0);
    if (found != 0) return found;
    ::sched_yield();
  } while (Clock::now() < until);
  return 0;
}

Clock::time_point AbortableWait::poll_until(ActiveCall& active) const {
  return leader_gone_ ? std::min(active.deadline(), Clock::now() + kPollAlone) : active.deadline();
}

// The connection ends when the leader leaves the group or dies. Messages between other ranks go on;
// a collective needs the leader too.
void AbortableWait::look(ActiveCall& active, short connection_events) {
  node_.check_healthy(active);
  if ((connection_events & (POLLHUP | POLLNVAL)) != 0) leader_gone_ = true;
  const int leader = placement_.local_ranks().front();
  if (leader_gone_ && active.number != 0 &&
      node_.peers().segment().rank_state(0).presence.load() == shm::Presence::left)
    node_.fail(active,
               {ErrorCode::peer_lost, node_.describe(leader) + " has left the group", {leader}});
  if (Clock::now() >= active.deadline())
    node_.peers().give_up(active, "its ranks didn't say who is late", {});
}

bool AbortableWait::await_break(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (node_.is_healthy() && Clock::now() < until) {
    pollfd wait{broken_fd(), POLLIN, 0};
    const auto look = leader_gone_ ? std::min(until, Clock::now() + kPollAlone) : until;
    if (::poll(&wait, 1, poll_time(look)) > 0 && (wait.revents & (POLLHUP | POLLNVAL)) != 0)
      leader_gone_ = true;
  }
  return !node_.is_healthy();
}

void AbortableWait::lose(ActiveCall& active, int rank, const std::string& how) {
  if (await_break(kCauseTime)) node_.peers().throw_cause(active);
  node_.fail(active, {ErrorCode::peer_lost,
                      node_.describe(rank) + " has left the group or ended: " + how,
                      {rank}});
}

void AbortableWait::lose_own(ActiveCall& active, int rank) {
  const int own = placement_.rank;
  node_.fail(active, {ErrorCode::peer_lost,
                      node_.describe(own) + ": this program has closed the connection to rank " +
                          std::to_string(rank),
                      {own}});
}

void AbortableWait::notify(const Notice& notice) noexcept {
  if (detector_) return detector_->notify(notice);
  // A leader that is gone is detected in other ways.
  if (connection_.is_ours())
    (void)::send(connection_.get(), &notice, sizeof notice, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void AbortableWait::on_break() noexcept { notify({}); }

void AbortableWait::await_cause_sent() noexcept {
  if (detector_ && !node_.is_healthy()) detector_->await_cause_sent();
}

void AbortableWait::find_late(ActiveCall& active) {
  Notice notice;
  notice.kind = Notice::Kind::late;
  notice.number = active.number;
  notice.peer = active.call.peer;
  notice.operation = active.call.what.operation;
  notice.limit_ms = active.call.limit.count();
  notify(notice);
  if (await_break(kFindingsTime)) return;
  node_.break_with(find_late_here(active));
}

// The leader doesn't answer: it may be the one that is stopped. Of ranks on other hosts nothing is
// known then.
Error AbortableWait::find_late_here(const ActiveCall& active) const {
  const auto all = node_.statuses();
  const auto mine = node_.peers().wait_of(active);
  const auto first = shm::is_message(mine.operation) ? std::vector<int>{active.call.peer}
                                                     : shm::late_in(all, mine.of);
  const auto found = shm::blame(all, mine, first);
  auto ranks = found.ranks();
  std::vector<std::string> parts;
  if (!ranks.empty())
    parts.push_back(shm::describe(found, all, [this](int r) { return node_.describe(r); }));
  const int leader = placement_.local_ranks().front();
  const bool is_named = std::find(ranks.begin(), ranks.end(), leader) != ranks.end();
  if (!is_named) parts.push_back(node_.describe(leader) + " doesn't answer");
  if (ranks.empty()) ranks.push_back(leader);
  return {ErrorCode::timed_out,
          "timed out after " + acc::describe(active.call.limit) + ": " + join(parts, "; "),
          std::move(ranks)};
}

}  // namespace acc::runtime::tcp
