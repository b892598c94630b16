#include "runtime/shm/peers.hpp"

#include "runtime/shm/pull.hpp"
#include "runtime/spin_pause.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace acc::runtime::shm {
namespace {

using namespace std::chrono_literals;

// A sleeper is woken by the count it waits for and by a break. It also checks periodically, in case
// a peer was killed while waking others.
constexpr std::chrono::nanoseconds kLookRound = 100ms;
// A mismatch is reported immediately, except that ranks that have not arrived yet get this long, so
// that the message can name all.
constexpr std::chrono::nanoseconds kMismatchGrace = 500ms;

constexpr std::chrono::nanoseconds kForeignSlice = 1ms;
constexpr unsigned kTimeEvery = 8;
// Limit of waits that skip yields.
constexpr int kMostSkips = 1 << 12;

void publish_cpus(RankState& rank_state) noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  static_assert(sizeof set >= sizeof rank_state.cpus);
  for (std::size_t i = 0; i < rank_state.cpus.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, reinterpret_cast<const std::byte*>(&set) + i * sizeof bits, sizeof bits);
    rank_state.cpus[i].store(bits, std::memory_order_relaxed);
  }
}

/// Cores that ranks from `first` to `last` may run on: each may be bound to one of its own.
int cores_of(const Segment& segment, int first, int last) noexcept {
  int cores = 0;
  for (std::size_t i = 0; i < segment.rank_state(0).cpus.size(); ++i) {
    std::uint64_t bits = 0;
    for (int r = first; r < last; ++r)
      bits |= segment.rank_state(r).cpus[i].load(std::memory_order_relaxed);
    cores += std::popcount(bits);
  }
  return cores == 0 ? static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)) : cores;
}

std::uint64_t packed(int rank, Count which, std::uint32_t target) noexcept {
  return (static_cast<std::uint64_t>(rank) + 1) << 40 | static_cast<std::uint64_t>(which) << 32 |
         target;
}

}  // namespace

Peers::Peers(UniqueFd segment, const Layout& layout, Options options)
    : options_{std::move(options)}, segment_{std::move(segment), layout} {
  publish_cpus(mine());
  cores_ = std::min(quota_cores(), cores_of(segment_, options_.rank, options_.rank + 1));
  spin_ = spin_policy(options_.size, cores_);
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
      if (segment_.rank_state(r).presence.load() != Presence::left) lost(r, how);
    }));
  }
}

// After the first collective all ranks have published the cores they may use and what they can
// read.
void Peers::settle() noexcept {
  cores_ = std::min(quota_cores(), cores_of(segment_, 0, size()));
  spin_ = spin_policy(size(), cores_);
  can_pull_ =
      options_.is_whole_group && size() == 2 && can_read_memory_of(options_.ranks, segment_);
}

Word& Peers::word_of(int rank, Count which) const noexcept {
  RankState& rank_state = segment_.rank_state(rank);
  switch (which) {
    case Count::staged:
      return rank_state.staged;
    case Count::processed:
      return rank_state.processed;
    case Count::taken:
      return rank_state.taken;
    case Count::met:
      return rank_state.met;
    case Count::arrival0:
    case Count::arrival1:
    default:
      return rank_state.arrivals[which == Count::arrival1 ? 1 : 0].word;
  }
}

void Peers::await_arrivals(ActiveCall& active) {
  const auto which = number_ % 2 == 0 ? Count::arrival0 : Count::arrival1;
  bool all_equal = true;
  for (int step = 1; step < size(); ++step) {
    const int rank = after(step);
    const Arrival& theirs = arrival(rank);
    if (!reached(theirs.word, number_ * kStep))
      wait(active, rank, word_of(rank, which), which, number_ * kStep);
    all_equal = all_equal && theirs.what == active.call.what;
  }
  if (!all_equal && options_.check) throw_mismatch(active);
}

void Peers::wait(ActiveCall& active, int rank, Word& word, Count which, std::uint32_t target) {
  if (pause_until(word, target)) return;
  if (skip_yields_.load(std::memory_order_relaxed) > 0) {
    skip_yields_.fetch_sub(1, std::memory_order_relaxed);
  } else if (yield_until(word, target)) {
    return;
  }
  if (active.lane() == 0) waiting_.store(packed(rank, which, target), std::memory_order_relaxed);
  sleep(active, rank, word, which, target);
  if (active.lane() == 0) waiting_.store(0, std::memory_order_relaxed);
}

/// Pauses are useless while both ranks share a core, which can last: after some that were in vain
/// only one wait in kTryAgain uses them.
bool Peers::pause_until(const Word& word, std::uint32_t target) noexcept {
  constexpr unsigned kInVain = 8;
  constexpr unsigned kTryAgain = 32;
  if (spin_.pauses == 0) return false;
  const auto in_vain = pauses_in_vain_.load(std::memory_order_relaxed);
  if (in_vain < kInVain || in_vain % kTryAgain == 0) {
    for (int i = 0; i < spin_.pauses; ++i) {
      spin_pause();
      if (!reached(word, target)) continue;
      pauses_in_vain_.store(0, std::memory_order_relaxed);
      return true;
    }
  }
  pauses_in_vain_.store(in_vain + 1, std::memory_order_relaxed);
  return false;
}

/// A yield to a rank is short. One to a computing program costs its whole time slice, milliseconds,
/// and on a busy machine the slices of all that wait for the core, whereas a woken sleeper preempts
/// them: so the first slow yield ends the wait's yields. How slow they are is measured in a sample
/// only, as reading the clock costs about as much as a yield: then yields are skipped for a number
/// of waits that doubles each time this is found again. The other waits read the coarse clock, a
/// tenth of that, which moves each 1 to 10 ms; that it moved by chance costs a sleep.
bool Peers::yield_until(const Word& word, std::uint32_t target) noexcept {
  const bool is_timed = waits_.fetch_add(1, std::memory_order_relaxed) % kTimeEvery == 0;
  auto before = is_timed ? Clock::now() : Clock::time_point{};
  const auto tick = is_timed ? 0 : coarse_clock_ns();
  for (int i = 0; i < spin_.yields; ++i) {
    ::sched_yield();
    const bool has_come = reached(word, target);
    if (segment_.header().health.load(std::memory_order_relaxed) != Health::healthy)
      return has_come;
    if (is_timed) {
      const auto now = Clock::now();
      if (now - before > kForeignSlice) {
        const int skips = next_skip_.load(std::memory_order_relaxed);
        skip_yields_.store(skips, std::memory_order_relaxed);
        next_skip_.store(std::min(skips * 2, kMostSkips), std::memory_order_relaxed);
        return has_come;
      }
      before = now;
    } else if (!has_come && coarse_clock_ns() != tick) {
      return false;
    }
    if (has_come) break;
  }
  if (is_timed) next_skip_.store(kLeastSkips, std::memory_order_relaxed);
  return reached(word, target);
}

void Peers::sleep(ActiveCall& active, int rank, Word& word, Count which, std::uint32_t target) {
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
  const Asleep asleep{word, mine().sleeps_at[active.lane()], segment_.offset_of(word)};
  const Blocked blocked{*this, active};
  auto deadline = active.deadline();
  const bool compares = options_.check && (which == Count::arrival0 || which == Count::arrival1);
  bool differ = false;
  for (;;) {
    const auto seen = word.count.load();
    if (reached(seen, target)) return;
    if (segment_.header().health.load() != Health::healthy) {
      const bool excused = culprit_is_through(which);
      const auto presence = segment_.rank_state(rank).presence.load();
      if (reached(word, target)) return;
      if (!excused) throw_cause(active);
      if (presence == Presence::gone) throw_gone(active, rank);
    }
    if (segment_.rank_state(rank).presence.load() == Presence::left) {
      if (reached(word, target)) return;  // it posted before it left
      throw_left(active, rank);
    }
    const auto now = Clock::now();
    if (compares && !differ && any_differ(target)) {
      differ = true;
      deadline = std::min<Clock::time_point>(deadline, now + kMismatchGrace);
    }
    if (now >= deadline) {
      if (differ) throw_mismatch(active);
      give_up(active, rank);
    }
    sleep_on(word, seen, std::min<std::chrono::nanoseconds>(kLookRound, deadline - now));
  }
}

bool Peers::any_differ(std::uint32_t target) const noexcept {
  const Arrival& own = arrival(rank());
  for (int r = 0; r < size(); ++r) {
    const Arrival& theirs = arrival(r);
    if (reached(theirs.word, target) && !(theirs.what == own.what)) return true;
  }
  return false;
}

// A rank that ended after completing this call is not needed for it: many programs end right after
// the last collective. The ranks that are still needed are alive, or are detected as gone
// themselves.
bool Peers::culprit_is_through(Count which) const noexcept {
  if (which == Count::message || which == Count::space || !options_.is_whole_group) return false;
  if (!cause_is_written()) return false;
  const Cause& cause = segment_.header().cause;
  const int culprit = cause.culprit;
  return cause.code == ErrorCode::peer_lost && culprit >= 0 &&
         static_cast<std::int32_t>(segment_.rank_state(culprit).completed.load() - number_) >= 0;
}

void Peers::lost(int index, const std::string& how) noexcept {
  try {
    segment_.rank_state(index).presence.store(Presence::gone);
    const auto number = options_.ranks.at(static_cast<std::size_t>(index)).rank;
    break_with(Error{ErrorCode::peer_lost,
                     describe(index) + " " + how + "; " + describe_state(index),
                     {number}},
               {}, index);
  } catch (...) {  // no memory for the text
    break_with(Error{ErrorCode::peer_lost, "a rank was lost"}, {}, index);
  }
  poke_sleepers();  // also those that could go on after an earlier loss
}

void Peers::break_with(const Error& error, const Descriptor& what, int culprit) noexcept {
  Header& header = segment_.header();
  auto healthy = Health::healthy;
  if (!header.health.compare_exchange_strong(healthy, Health::breaking)) return;
  Cause& cause = header.cause;
  cause.code = error.code();
  cause.what = what;
  cause.culprit = culprit;
  cause.count =
      static_cast<std::uint32_t>(std::min<std::size_t>(error.ranks().size(), cause.ranks.size()));
  std::copy_n(error.ranks().begin(), cause.count, cause.ranks.begin());
  const auto size = std::min(std::strlen(error.what()), cause.text.size() - 1);
  std::memcpy(cause.text.data(), error.what(), size);
  header.health.store(Health::broken);
  poke_sleepers();
  if (options_.on_break) options_.on_break();
}

// Sleeping ranks have published where; the others check the state of the group before they sleep.
void Peers::poke_sleepers() noexcept {
  for (int r = 0; r < size(); ++r)
    for (const auto& at : segment_.rank_state(r).sleeps_at)
      if (const auto offset = at.load(); offset != 0) poke(segment_.word_at(offset));
}

int Peers::index_of(int rank) const noexcept {
  const auto& all = options_.ranks;
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const RankFacts& one) { return one.rank == rank; });
  return it == all.end() ? -1 : static_cast<int>(it - all.begin());
}

}  // namespace acc::runtime::shm
