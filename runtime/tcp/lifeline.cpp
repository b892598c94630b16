#include "runtime/tcp/lifeline.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/sockets.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace acc::runtime::hosts {

using namespace std::chrono_literals;

namespace {

/// For the word of why, when a connection ended: the leaders tell it within milliseconds.
constexpr auto kCauseTime = 200ms;
/// For the leader's findings, which wait for the other hosts' answers.
constexpr auto kFindingsTime = 700ms;
/// Before sleeping. Longer is better with a core for each rank, worse without.
constexpr auto kAwake = 30us;
/// Without a leader nobody wakes us.
constexpr auto kLookAlone = 20ms;

}  // namespace

Lifeline::Lifeline(Room& room, const Placement& placement, std::unique_ptr<Control> control,
                   UniqueFd line)
    : room_{room}, placement_{placement}, line_{std::move(line)}, control_{std::move(control)} {}

int Lifeline::broken_fd() const {
  if (alone_) return -1;
  return control_ ? control_->broken_fd() : line_.get();
}

void Lifeline::wait(Turn& turn, std::vector<pollfd>& waits) {
  struct Waiting {
    std::atomic<std::uint32_t>& count;
    explicit Waiting(std::atomic<std::uint32_t>& at) : count{at} { count.fetch_add(1); }
    ~Waiting() { count.fetch_sub(1); }
  };
  waits.push_back({});
  for (bool ready = false; !ready;) {
    waits.back() = {broken_fd(), POLLIN, 0};
    {
      const Waiting waiting{room_.mine().waits};
      int found = poll_awake(waits);
      if (found == 0) found = ::poll(waits.data(), waits.size(), poll_time(look_at(turn)));
      if (found < 0 && errno != EINTR)
        room_.fail(turn, {ErrorCode::system, system_error(errno, "poll").what});
      ready = found > (waits.back().revents != 0 ? 1 : 0);
    }
    look(turn, waits.back().revents);
  }
  waits.pop_back();
}

// Who sleeps is woken where the sender runs, and then both share a core; and waking takes longer
// than the next bytes take to come.
int Lifeline::poll_awake(std::vector<pollfd>& waits) {
  const auto until = Clock::now() + kAwake;
  do {
    const int found = ::poll(waits.data(), waits.size(), 0);
    if (found != 0) return found;
    ::sched_yield();
  } while (Clock::now() < until);
  return 0;
}

Clock::time_point Lifeline::look_at(Turn& turn) const {
  return alone_ ? std::min(turn.deadline(), Clock::now() + kLookAlone) : turn.deadline();
}

// A leader that left its group ends the line, and so does one that died. Messages of others go on
// without it; who waits in a collective waits for it too.
void Lifeline::look(Turn& turn, short line_events) {
  room_.check_well(turn);
  if ((line_events & POLLHUP) != 0) alone_ = true;
  const int leader = placement_.near().front();
  if (alone_ && turn.number != 0 && room_.place(0).presence.load() == Presence::left)
    room_.fail(turn,
               {ErrorCode::peer_lost, room_.describe(leader) + " has left the group", {leader}});
  if (Clock::now() >= turn.deadline()) room_.give_up(turn);
}

bool Lifeline::await_break(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (room_.is_well() && Clock::now() < until) {
    pollfd wait{broken_fd(), POLLIN, 0};
    const auto look = alone_ ? std::min(until, Clock::now() + kLookAlone) : until;
    if (::poll(&wait, 1, poll_time(look)) > 0 && (wait.revents & POLLHUP) != 0) alone_ = true;
  }
  return !room_.is_well();
}

void Lifeline::lose(Turn& turn, int rank, const std::string& how) {
  if (await_break(kCauseTime)) room_.throw_cause(turn);
  room_.fail(turn, {ErrorCode::peer_lost,
                    room_.describe(rank) + " has left the group or ended: " + how,
                    {rank}});
}

void Lifeline::tell(const Note& note) noexcept {
  if (control_) return control_->tell(note);
  // A leader that is gone is seen by others ways.
  (void)::send(line_.get(), &note, sizeof note, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Lifeline::broke() noexcept { tell({}); }

void Lifeline::tell_others_first() noexcept {
  if (control_ && !room_.is_well()) control_->await_told();
}

void Lifeline::find_late(Turn& turn) {
  Note note;
  note.kind = Note::Kind::late;
  note.number = turn.number;
  note.peer = turn.call.peer;
  note.operation = turn.call.what.operation;
  note.limit_ms = turn.call.limit.count();
  tell(note);
  if (await_break(kFindingsTime)) return;
  // The leader itself doesn't answer: it may be the one that is stopped.
  std::vector<std::string> parts;
  std::vector<int> ranks;
  for (const auto& [rank, text] : room_.late(turn.number)) {
    parts.push_back(text);
    ranks.push_back(rank);
  }
  if (parts.empty()) {
    ranks.push_back(placement_.near().front());
    parts.push_back(room_.describe(ranks.back()) + " doesn't answer");
  }
  room_.break_with({ErrorCode::timed_out,
                    "timed out after " + acc::describe(turn.call.limit) + ": " + join(parts, ", "),
                    std::move(ranks)});
}

}  // namespace acc::runtime::hosts
