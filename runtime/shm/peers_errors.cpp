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

/// "send f32 x100 #50 to rank 1"
std::string to_string(const LastMessage::Message& message) {
  return runtime::to_string(message.what) +
         (message.what.operation == Operation::send ? " to rank " : " from rank ") +
         std::to_string(message.peer);
}

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
  std::vector<std::string> calls;
  const auto number = rank_state.completed.load();
  // Stable: without this rank it can't complete another collective.
  if (number != 0) calls.push_back(runtime::to_string(rank_state.arrivals[number % 2].what));
  for (const auto& messages : rank_state.messages)
    if (const auto last = messages.get()) calls.push_back(to_string(*last));
  const std::string text =
      calls.empty() ? "it has completed nothing yet" : "it last completed " + join(calls, " and ");
  return text + (is_stopped(index) ? "; it is stopped (process state T)" : "");
}

RankStatus Peers::status(int index) const {
  const RankState& rank_state = segment_.rank_state(index);
  RankStatus made;
  made.source = RankStatus::Source::rank;
  made.has_joined = rank_state.presence.load() != Presence::absent;
  made.is_stopped = is_stopped(index);
  made.is_waiting = rank_state.sleeps_at[0].load() != 0 || rank_state.waits.load() != 0;
  made.completed = rank_state.completed.load();
  made.arrived = made.completed;
  for (const auto number : {made.completed + 1, made.completed + 2})
    if (reached(rank_state.arrivals[number % 2].word, number * kStep)) made.arrived = number;
  if (made.arrived != made.completed)
    made.collective = runtime::to_string(rank_state.arrivals[made.arrived % 2].what);
  for (std::size_t lane = 0; lane < made.waits.size(); ++lane)
    made.waits[lane] = rank_state.blocked_in[lane].lasting();
  made.last = describe_state(index);
  return made;
}

bool Peers::is_stopped(int index) const {
  const auto pid = options_.ranks.at(static_cast<std::size_t>(index)).pid;
  if (pid == ::getpid()) return false;
  const char state = process_state(static_cast<pid_t>(pid));
  return state == 'T' || state == 't';
}

void Peers::give_up(ActiveCall& active, int rank) {
  if (options_.find_late) give_up(active, "its ranks didn't say who is late", {});
  std::vector<RankStatus> all;
  for (int r = 0; r < size(); ++r) all.push_back(status(r));
  const Wait mine = wait_of(active);
  auto first = is_message(mine.operation) ? std::vector<int>{rank} : late_in(all, mine.of);
  std::erase(first, options_.rank);
  if (first.empty()) first.push_back(rank);
  const auto found = blame(all, mine, first);
  give_up(active, shm::describe(found, all, [this](int r) { return describe(r); }), found.ranks());
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
  const auto target = static_cast<std::uint32_t>(waiting);
  std::vector<int> found;
  for (int r = 0; r < size(); ++r)
    if (is_arrival(which) ? r != options_.rank && !reached(word_of(r, which), target) : r == rank)
      found.push_back(options_.ranks.at(static_cast<std::size_t>(r)).rank);
  return found;
}

}  // namespace acc::runtime::shm
