// What Peers says when it can't go on.
#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/shm/peers.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace acc::runtime::shm {
namespace {

using namespace std::chrono_literals;

bool is_arrival(Count which) { return which == Count::arrival0 || which == Count::arrival1; }

Error named(ErrorCode code, const std::string& text, std::vector<int> ranks, const Call& call) {
  return Error{code, text, std::move(ranks), std::string{to_string(call.what.operation)},
               call.what.sequence};
}

}  // namespace

std::string Peers::title(const Turn& turn) const {
  return to_string(turn.call.what) + " of " + options_.group;
}

std::string Peers::describe(int index) const {
  const auto& facts = options_.ranks.at(static_cast<std::size_t>(index));
  std::string text = "rank " + std::to_string(facts.rank) + " (";
  if (!facts.host.empty()) text += "host " + facts.host + ", ";
  return text + "pid " + std::to_string(facts.pid) + ")";
}

std::string Peers::last_completed(int index) const {
  const Place& place = segment_.place(index);
  const auto number = place.completed.load();
  if (number == 0) return "has completed nothing yet";
  // Not overwritten while it stands here: without us it can't complete another.
  return "last completed " + to_string(place.arrivals[number % 2].what);
}

std::string Peers::describe_late(int index, Count which) const {
  const Place& place = segment_.place(index);
  std::string text = describe(index);
  if (which == Count::message) {
    text += " has not sent";
  } else if (which == Count::room) {
    text += " has not received what was sent before";
  } else if (!is_arrival(which)) {
    text += " came, but does not get on";
  } else {
    text += place.presence.load() == Presence::absent ? " has not joined" : " has not come";
  }
  text += "; it " + last_completed(index);
  if (is_stopped(index)) text += "; it is stopped (process state T)";
  return text;
}

/// Whose fault it is: those who have not come; or, in the middle of a call, those who are neither
/// through nor waiting for somebody themselves.
std::vector<int> Peers::late(int rank, Count which, std::uint32_t target) const {
  std::vector<int> found;
  if (which == Count::message || which == Count::room) return {rank};
  for (int r = 0; r < size(); ++r) {
    if (r == options_.rank) continue;
    const Place& place = segment_.place(r);
    const bool is_late = is_arrival(which)
                             ? !reached(word_of(r, which), target)
                             : place.sleeps_at[0].load() == 0 && place.completed.load() != number_;
    if (is_late) found.push_back(r);
  }
  // One that was stopped in its sleep seems to wait for somebody, and those who wait for it may be
  // just awake.
  if (!is_arrival(which)) {
    const auto stopped = stopped_in_call();
    if (!stopped.empty()) return stopped;
  }
  return found.empty() ? std::vector<int>{rank} : found;
}

bool Peers::is_stopped(int index) const {
  const auto pid = options_.ranks.at(static_cast<std::size_t>(index)).pid;
  if (pid == ::getpid()) return false;
  const char state = process_state(static_cast<pid_t>(pid));
  return state == 'T' || state == 't';
}

std::vector<int> Peers::stopped_in_call() const {
  std::vector<int> found;
  for (int r = 0; r < size(); ++r)
    if (r != options_.rank && segment_.place(r).completed.load() != number_ && is_stopped(r))
      found.push_back(r);
  return found;
}

void Peers::give_up(const Turn& turn, int rank, Count which, std::uint32_t target) {
  const auto indices = late(rank, which, target);
  std::vector<std::string> parts;
  std::vector<int> numbers;
  for (const int index : indices) {
    parts.push_back(describe_late(index, which));
    numbers.push_back(options_.ranks.at(static_cast<std::size_t>(index)).rank);
  }
  fail(turn, named(ErrorCode::timed_out,
                   "timed out after " + acc::describe(turn.call.limit) + ": " + join(parts, ", "),
                   numbers, turn.call));
}

void Peers::fail(const Turn& turn, const Error& error) {
  break_with(error, turn.call.what);
  throw_cause(turn);  // ours, or that of who was first
}

void Peers::throw_left(const Turn& turn, int rank) {
  const auto& leaver = options_.ranks.at(static_cast<std::size_t>(rank));
  await_end_of_leaver(static_cast<pid_t>(leaver.pid));
  const auto number = leaver.rank;
  fail(turn, named(ErrorCode::peer_lost,
                   describe(rank) + " has left the group; it " + last_completed(rank), {number},
                   turn.call));
}

/// Another one was lost before, but was through with this call: it isn't to blame for it.
void Peers::throw_gone(const Turn& turn, int rank) const {
  throw named(ErrorCode::peer_lost,
              title(turn) + ": " + describe(rank) + " has ended; it " + last_completed(rank),
              {options_.ranks.at(static_cast<std::size_t>(rank)).rank}, turn.call);
}

void Peers::throw_mismatch(const Turn& turn) {
  std::vector<Descriptor> all;
  for (int r = 0; r < size(); ++r) {
    const bool has_come = reached(arrival(r).word, number_ * kStep);
    all.push_back(has_come ? arrival(r).what : Descriptor{});
  }
  const Error error = mismatch(all, options_.group);
  break_with(error, turn.call.what);
  throw named(error.code(), error.what(), error.ranks(), turn.call);
}

/// Of a group that is broken or just being broken: who does it may be killed meanwhile.
bool Peers::cause_is_written() const noexcept {
  const auto& health = segment_.header().health;
  const auto patience = Clock::now() + 50ms;
  while (health.load(std::memory_order_acquire) != Health::broken) {
    if (Clock::now() > patience) return false;
    ::sched_yield();
  }
  return true;
}

void Peers::throw_cause(const Turn& turn) {
  if (!cause_is_written())
    throw named(ErrorCode::peer_lost,
                title(turn) + ": the rank that broke the group ended before it could say why", {},
                turn.call);
  const Cause& cause = segment_.header().cause;
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if ((cause.ranks[static_cast<std::size_t>(r) / 64] >> (r % 64) & 1) != 0)
      ranks.push_back(options_.ranks.at(static_cast<std::size_t>(r)).rank);
  std::string text = cause.text.data();
  // A mismatch says itself what was called.
  if (cause.code != ErrorCode::mismatch) text = title(turn) + ": " + text;
  if (cause.what.operation != Operation::none && !(cause.what == turn.call.what))
    text += " (found in " + to_string(cause.what) + ")";
  throw named(cause.code, text, ranks, turn.call);
}

std::vector<int> Peers::waits_for() const {
  const auto waiting = waiting_.load(std::memory_order_relaxed);
  if (waiting == 0) return {};
  const int rank = static_cast<int>(waiting >> 40) - 1;
  const auto which = static_cast<Count>(waiting >> 32 & 0xff);
  std::vector<int> found;
  for (const int index : is_arrival(which) ? late(rank, which, static_cast<std::uint32_t>(waiting))
                                           : std::vector<int>{rank})
    found.push_back(options_.ranks.at(static_cast<std::size_t>(index)).rank);
  return found;
}

}  // namespace acc::runtime::shm
