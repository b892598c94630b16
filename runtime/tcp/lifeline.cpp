#include "runtime/tcp/lifeline.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/sockets.hpp"

#include <cerrno>
#include <utility>

namespace acc::runtime::hosts {

using namespace std::chrono_literals;

namespace {

/// For the word of why, when a connection ended: the leaders tell it within milliseconds.
constexpr auto kCauseTime = 200ms;
/// For the leader's findings, which wait for the other hosts' answers.
constexpr auto kFindingsTime = 700ms;

}  // namespace

Lifeline::Lifeline(Room& room, const Placement& placement, std::unique_ptr<Control> control,
                   UniqueFd line)
    : room_{room}, placement_{placement}, line_{std::move(line)}, control_{std::move(control)} {}

int Lifeline::broken_fd() const { return control_ ? control_->broken_fd() : line_.get(); }

void Lifeline::wait(Turn& turn, std::vector<pollfd>& waits) {
  waits.push_back({broken_fd(), POLLIN, 0});
  struct Waiting {
    std::atomic<std::uint32_t>& count;
    explicit Waiting(std::atomic<std::uint32_t>& at) : count{at} { count.fetch_add(1); }
    ~Waiting() { count.fetch_sub(1); }
  };
  for (;;) {
    int ready = 0;
    {
      const Waiting waiting{room_.mine().waits};
      ready = ::poll(waits.data(), waits.size(), poll_time(turn.deadline()));
    }
    if (ready < 0 && errno != EINTR)
      room_.fail(turn, {ErrorCode::system, system_error(errno, "poll").what});
    if (ready == 0) room_.give_up(turn);
    if (ready > 0) break;
  }
  const bool broken = waits.back().revents != 0;
  waits.pop_back();
  if (!broken) return;
  room_.check_well(turn);
  const int leader = placement_.near().front();
  room_.fail(turn, {ErrorCode::peer_lost, room_.describe(leader) + " has left the group", {leader}});
}

bool Lifeline::await_break(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (room_.is_well() && Clock::now() < until) {
    pollfd wait{broken_fd(), POLLIN, 0};
    if (::poll(&wait, 1, poll_time(until)) > 0) break;  // or the leader is gone
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
  if (parts.empty()) parts.emplace_back("nobody says who is late");
  room_.break_with({ErrorCode::timed_out,
                    "timed out after " + acc::describe(turn.call.limit) + ": " + join(parts, ", "),
                    std::move(ranks)});
}

}  // namespace acc::runtime::hosts
