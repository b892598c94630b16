#include "runtime/shm/peers.hpp"

#include "runtime/shm/pull.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace acc::runtime::shm {
namespace {

using namespace std::chrono_literals;

// A sleeper is woken by what it waits for, and by a break; that it also looks round by itself is
// for a peer that was killed in the middle of waking others.
constexpr std::chrono::nanoseconds kLookRound = 100ms;
// Ranks that call different things are told at once, but those who haven't come yet get this long,
// so that the message can name all.
constexpr std::chrono::nanoseconds kMismatchGrace = 500ms;

constexpr std::chrono::nanoseconds kForeignSlice = 1ms;
constexpr unsigned kTimeEvery = 8;
// Waits that go without yields.
constexpr int kMostHaste = 1 << 12;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void publish_cpus(Place& place) noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  static_assert(sizeof set >= sizeof place.cpus);
  for (std::size_t i = 0; i < place.cpus.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, reinterpret_cast<const std::byte*>(&set) + i * sizeof bits, sizeof bits);
    place.cpus[i].store(bits, std::memory_order_relaxed);
  }
}

/// That any of the first `size` ranks may run on: each may be bound to one of its own.
int cores_of(const Segment& segment, int first, int last) noexcept {
  int cores = 0;
  for (std::size_t i = 0; i < segment.place(0).cpus.size(); ++i) {
    std::uint64_t bits = 0;
    for (int r = first; r < last; ++r)
      bits |= segment.place(r).cpus[i].load(std::memory_order_relaxed);
    cores += std::popcount(bits);
  }
  return cores == 0 ? static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)) : cores;
}

std::uint64_t packed(int rank, Count which, std::uint32_t target) noexcept {
  return (static_cast<std::uint64_t>(rank) + 1) << 40 | static_cast<std::uint64_t>(which) << 32 |
         target;
}

}  // namespace

Peers::Peers(UniqueFd segment, Options options)
    : options_{std::move(options)}, segment_{std::move(segment), options_.size} {
  publish_cpus(mine());
  cores_ = std::min(quota_cores(), cores_of(segment_, options_.rank, options_.rank + 1));
  patience_ = patience(options_.size, cores_);
  probe_ = kProbeValue;
  mine().probe.store(reinterpret_cast<std::uintptr_t>(&probe_), std::memory_order_relaxed);
  mine().presence.store(Presence::here, std::memory_order_release);
  watch_peers();
}

Peers::~Peers() {
  for (const auto id : watched_) watch_->forget(id);
  mine().presence.store(Presence::left);
  poke_sleepers();
}

void Peers::watch_peers() {
  const auto own = static_cast<std::int64_t>(::getpid());
  for (int r = 0; r < size(); ++r) {
    const auto pid = options_.ranks.at(static_cast<std::size_t>(r)).pid;
    if (pid <= 0 || pid == own) continue;  // a thread of ours ends with us
    if (!watch_) watch_ = ProcessWatch::shared();
    watched_.push_back(watch_->watch(static_cast<pid_t>(pid), [this, r](const std::string& how) {
      if (segment_.place(r).presence.load() != Presence::left) lost(r, how);
    }));
  }
}

// After the first collective all have come, and said where they may run and what they can read.
void Peers::settle() noexcept {
  cores_ = std::min(quota_cores(), cores_of(segment_, 0, size()));
  patience_ = patience(size(), cores_);
  can_pull_ = size() == 2 && can_read_memory_of(options_.ranks, segment_);
}

Word& Peers::word_of(int rank, Count which) const noexcept {
  Place& place = segment_.place(rank);
  switch (which) {
    case Count::staged:
      return place.staged;
    case Count::reduced:
      return place.reduced;
    case Count::taken:
      return place.taken;
    case Count::met:
      return place.met;
    case Count::arrival0:
    case Count::arrival1:
    default:
      return place.arrivals[which == Count::arrival1 ? 1 : 0].word;
  }
}

void Peers::await_arrivals(Turn& turn) {
  const auto which = number_ % 2 == 0 ? Count::arrival0 : Count::arrival1;
  bool all_the_same = true;
  for (int step = 1; step < size(); ++step) {
    const int rank = after(step);
    const Arrival& theirs = arrival(rank);
    if (!reached(theirs.word, number_ * kStep))
      wait(turn, rank, word_of(rank, which), which, number_ * kStep);
    all_the_same = all_the_same && theirs.what == turn.call.what;
  }
  if (!all_the_same && options_.check) throw_mismatch(turn);
}

void Peers::wait(Turn& turn, int rank, Word& word, Count which, std::uint32_t target) {
  if (pause_until(word, target)) return;
  if (haste_.load(std::memory_order_relaxed) > 0) {
    haste_.fetch_sub(1, std::memory_order_relaxed);
  } else if (yield_until(word, target)) {
    return;
  }
  if (!turn.is_waiting) {
    turn.is_waiting = true;
    if (turn.call.limit.count() > 0) turn.deadline = Clock::now() + turn.call.limit;
  }
  if (turn.lane() == 0) waiting_.store(packed(rank, which, target), std::memory_order_relaxed);
  sleep(turn, rank, word, which, target);
  if (turn.lane() == 0) waiting_.store(0, std::memory_order_relaxed);
}

/// Pauses are of no use while both ranks are on the same core, where the scheduler may leave them
/// for long: after some that were in vain only one wait in many tries them.
bool Peers::pause_until(const Word& word, std::uint32_t target) noexcept {
  constexpr unsigned kInVain = 8;
  constexpr unsigned kTryAgain = 32;
  if (patience_.pauses == 0) return false;
  const auto in_vain = pauses_in_vain_.load(std::memory_order_relaxed);
  if (in_vain < kInVain || in_vain % kTryAgain == 0) {
    for (int i = 0; i < patience_.pauses; ++i) {
      pause();
      if (!reached(word, target)) continue;
      pauses_in_vain_.store(0, std::memory_order_relaxed);
      return true;
    }
  }
  pauses_in_vain_.store(in_vain + 1, std::memory_order_relaxed);
  return false;
}

/// A yield to a rank is short. One to a program that computes costs its whole slice, milliseconds,
/// where a sleeper that is woken is let in before it: then sleeping is better for a while, and a
/// longer one each time that this is found again. A sample is timed: a look at the clock costs
/// about as much as a yield.
bool Peers::yield_until(const Word& word, std::uint32_t target) noexcept {
  const bool is_timed = waits_.fetch_add(1, std::memory_order_relaxed) % kTimeEvery == 0;
  auto before = is_timed ? Clock::now() : Clock::time_point{};
  for (int i = 0; i < patience_.yields; ++i) {
    ::sched_yield();
    const bool has_come = reached(word, target);
    if (is_timed) {
      const auto now = Clock::now();
      if (now - before > kForeignSlice) {
        const int haste = next_haste_.load(std::memory_order_relaxed);
        haste_.store(haste, std::memory_order_relaxed);
        next_haste_.store(std::min(haste * 2, kMostHaste), std::memory_order_relaxed);
        return has_come;
      }
      before = now;
    }
    if (has_come) break;
  }
  if (is_timed) next_haste_.store(kLeastHaste, std::memory_order_relaxed);
  return reached(word, target);
}

void Peers::sleep(Turn& turn, int rank, Word& word, Count which, std::uint32_t target) {
  struct Asleep {
    Word& word;
    std::atomic<std::uint64_t>& at;
    Asleep(Word& on, std::atomic<std::uint64_t>& where, std::uint64_t offset)
        : word{on}, at{where} {
      word.sleepers.fetch_add(1);
      at.store(offset);
    }
    ~Asleep() {
      at.store(0);
      word.sleepers.fetch_sub(1);
    }
  };
  const Asleep asleep{word, mine().sleeps_at[turn.lane()], segment_.offset_of(word)};
  auto deadline = turn.deadline;
  const bool compares = options_.check && (which == Count::arrival0 || which == Count::arrival1);
  bool differ = false;
  for (;;) {
    const auto seen = word.count.load();
    if (reached(seen, target)) return;
    if (segment_.header().health.load() != Health::well) {
      const bool excused = culprit_is_through(which);
      const auto presence = segment_.place(rank).presence.load();
      if (reached(word, target)) return;
      if (!excused) throw_cause(turn);
      if (presence == Presence::gone) throw_gone(turn, rank);
    }
    if (segment_.place(rank).presence.load() == Presence::left) {
      if (reached(word, target)) return;  // it did so before it left
      throw_left(turn, rank);
    }
    const auto now = Clock::now();
    if (compares && !differ && some_differ(target)) {
      differ = true;
      deadline = std::min(deadline.value_or(Clock::time_point::max()), now + kMismatchGrace);
    }
    if (deadline && now >= *deadline) {
      if (differ) throw_mismatch(turn);
      give_up(turn, rank, which, target);
    }
    auto limit = kLookRound;
    if (deadline) limit = std::min<std::chrono::nanoseconds>(limit, *deadline - now);
    sleep_on(word, seen, limit);
  }
}

bool Peers::some_differ(std::uint32_t target) const noexcept {
  const Arrival& own = arrival(rank());
  for (int r = 0; r < size(); ++r) {
    const Arrival& theirs = arrival(r);
    if (reached(theirs.word, target) && !(theirs.what == own.what)) return true;
  }
  return false;
}

// A rank that ended after it had completed this very call owes us nothing in it: programs that end
// right after the last collective are many. Those who still owe are alive, or are themselves seen
// to be gone.
bool Peers::culprit_is_through(Count which) const noexcept {
  if (which == Count::message || which == Count::room) return false;
  if (!cause_is_written()) return false;
  const Cause& cause = segment_.header().cause;
  const int culprit = cause.culprit;
  return cause.code == ErrorCode::peer_lost && culprit >= 0 &&
         static_cast<std::int32_t>(segment_.place(culprit).completed.load() - number_) >= 0;
}

void Peers::lost(int index, const std::string& how) noexcept {
  try {
    segment_.place(index).presence.store(Presence::gone);
    const auto number = options_.ranks.at(static_cast<std::size_t>(index)).rank;
    break_with(Error{ErrorCode::peer_lost,
                     describe(index) + " " + how + "; it " + last_completed(index),
                     {number}},
               {}, index);
  } catch (...) {  // no memory for the words
    break_with(Error{ErrorCode::peer_lost, "a rank was lost"}, {}, index);
  }
  poke_sleepers();  // also those who could go on after an earlier loss
}

void Peers::break_with(const Error& error, const Descriptor& what, int culprit) noexcept {
  Header& header = segment_.header();
  auto well = Health::well;
  if (!header.health.compare_exchange_strong(well, Health::breaking)) return;
  Cause& cause = header.cause;
  cause.code = error.code();
  cause.what = what;
  cause.culprit = culprit;
  for (const int r : error.ranks())
    if (const int index = index_of(r); index >= 0)
      cause.ranks[static_cast<std::size_t>(index) / 64] |= std::uint64_t{1} << (index % 64);
  const auto size = std::min(std::strlen(error.what()), cause.text.size() - 1);
  std::memcpy(cause.text.data(), error.what(), size);
  header.health.store(Health::broken);
  poke_sleepers();
}

// Who sleeps has said where; who hasn't yet will see, before it does, why we poke.
void Peers::poke_sleepers() noexcept {
  for (int r = 0; r < size(); ++r)
    for (const auto& at : segment_.place(r).sleeps_at)
      if (const auto offset = at.load(); offset != 0) poke(segment_.word_at(offset));
}

int Peers::index_of(int rank) const noexcept {
  const auto& all = options_.ranks;
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const RankFacts& one) { return one.rank == rank; });
  return it == all.end() ? -1 : static_cast<int>(it - all.begin());
}

}  // namespace acc::runtime::shm
