// The errors of Peers.
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

std::string Peers::title(const ActiveCall& active) const {
  return to_string(active.call.what) + " of " + options_.group;
}

std::string describe(const RankFacts& facts) {
  std::string text = "rank " + std::to_string(facts.rank) + " (";
  if (!facts.host.empty()) text += "host " + facts.host + ", ";
  return text + "pid " + std::to_string(facts.pid) + ")";
}

std::string Peers::describe_state(int index) const {
  const RankState& rank_state = segment_.rank_state(index);
  const auto number = rank_state.completed.load();
  std::string text = "it has completed nothing yet";
  // Stable: without this rank it can't complete another collective.
  if (number != 0) text = "it last completed " + to_string(rank_state.arrivals[number % 2].what);
  return text + (is_stopped(index) ? "; it is stopped (process state T)" : "");
}

bool Peers::has_arrived(int index, std::uint32_t number) const noexcept {
  return reached(segment_.rank_state(index).arrivals[number % 2].word, number * kStep);
}

std::string Peers::describe_late(int index, Count which) const {
  const RankState& rank_state = segment_.rank_state(index);
  std::string text = describe(index);
  if (which == Count::message) {
    text += " has not sent";
  } else if (which == Count::space) {
    text += " has not received what was sent before";
  } else if (!is_arrival(which)) {
    text += " arrived, but makes no progress";
  } else {
    text += rank_state.presence.load() == Presence::absent ? " has not joined" : " has not arrived";
  }
  return text + "; " + describe_state(index);
}

/// The ranks to blame: those that have not arrived; or, within a call, those that have neither
/// completed it nor wait for another rank.
std::vector<int> Peers::late(int rank, Count which, std::uint32_t target) const {
  std::vector<int> found;
  if (which == Count::message || which == Count::space) return {rank};
  for (int r = 0; r < size(); ++r) {
    if (r == options_.rank) continue;
    const bool is_late = is_arrival(which) ? !reached(word_of(r, which), target)
                                           : !is_waiting(r) && !has_completed(r, number_);
    if (is_late) found.push_back(r);
  }
  // A rank stopped in its sleep seems to wait for another, and the ranks that wait for it may be
  // awake at the moment.
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
    if (r != options_.rank && !has_completed(r, number_) && is_stopped(r)) found.push_back(r);
  return found;
}

void Peers::give_up(ActiveCall& active, int rank, Count which, std::uint32_t target) {
  const auto indices = late(rank, which, target);
  std::vector<std::string> parts;
  std::vector<int> numbers;
  for (const int index : indices) {
    parts.push_back(describe_late(index, which));
    numbers.push_back(options_.ranks.at(static_cast<std::size_t>(index)).rank);
  }
  give_up(active, join(parts, ", "), std::move(numbers));
}

void Peers::give_up(ActiveCall& active, const std::string& text, std::vector<int> ranks) {
  if (options_.find_late) {
    mine().waits.fetch_add(1);
    options_.find_late(active);
    mine().waits.fetch_sub(1);
  }
  fail(active, named(ErrorCode::timed_out,
                     "timed out after " + acc::describe(active.call.limit) + ": " + text,
                     std::move(ranks), active.call));
}

void Peers::fail(const ActiveCall& active, const Error& error) {
  break_with(error, active.call.what);
  throw_cause(active);  // this error, or that of the rank that was first
}

void Peers::throw_left(const ActiveCall& active, int rank) {
  const auto& leaver = options_.ranks.at(static_cast<std::size_t>(rank));
  await_end_of_leaver(static_cast<pid_t>(leaver.pid));
  const auto number = leaver.rank;
  fail(active,
       named(ErrorCode::peer_lost, describe(rank) + " has left the group; " + describe_state(rank),
             {number}, active.call));
}

/// Another rank was lost before, but had completed this call and is not to blame.
void Peers::throw_gone(const ActiveCall& active, int rank) const {
  throw named(ErrorCode::peer_lost,
              title(active) + ": " + describe(rank) + " has ended; " + describe_state(rank),
              {options_.ranks.at(static_cast<std::size_t>(rank)).rank}, active.call);
}

void Peers::throw_mismatch(const ActiveCall& active) {
  std::vector<Descriptor> all;
  for (int r = 0; r < size(); ++r) {
    const bool has_come = reached(arrival(r).word, number_ * kStep);
    all.push_back(has_come ? arrival(r).what : Descriptor{});
  }
  const Error error = mismatch(all, options_.group);
  break_with(error, active.call.what);
  throw named(error.code(), error.what(), error.ranks(), active.call);
}

/// For a group that is broken or being broken: the rank that breaks it may be killed meanwhile.
bool Peers::cause_is_written() const noexcept {
  const auto& health = segment_.header().health;
  const auto until = Clock::now() + 50ms;
  while (health.load(std::memory_order_acquire) != Health::broken) {
    if (Clock::now() > until) return false;
    ::sched_yield();
  }
  return true;
}

std::vector<int> Peers::ranks_to_blame() const {
  const Cause& cause = segment_.header().cause;
  return {cause.ranks.begin(), cause.ranks.begin() + cause.count};
}

std::optional<Error> Peers::cause() const {
  const Header& header = segment_.header();
  if (header.health.load(std::memory_order_acquire) == Health::healthy || !cause_is_written())
    return std::nullopt;
  return Error{header.cause.code, header.cause.text.data(), ranks_to_blame()};
}

void Peers::throw_cause(const ActiveCall& active) {
  if (!cause_is_written())
    throw named(ErrorCode::peer_lost,
                title(active) + ": the rank that broke the group ended before it could say why", {},
                active.call);
  const Cause& cause = segment_.header().cause;
  std::string text = cause.text.data();
  // A mismatch already names the calls.
  if (cause.code != ErrorCode::mismatch) text = title(active) + ": " + text;
  if (cause.what.operation != Operation::none && !(cause.what == active.call.what))
    text += " (found in " + to_string(cause.what) + ")";
  throw named(cause.code, text, ranks_to_blame(), active.call);
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
