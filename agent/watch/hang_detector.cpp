#include "agent/watch/hang_detector.hpp"

#include <algorithm>
#include <chrono>

namespace acc::agent {

namespace {

// The first heartbeat may come before the first step, which also compiles, allocates and connects.
constexpr std::uint64_t kFirstBeats = 2;
constexpr Millis kLeastFirst = std::chrono::minutes{10};
constexpr Millis kUnknownFirst = std::chrono::minutes{30};
constexpr int kFirstOfFixed = 3;  // times the time-out
// As NVIDIA's fault tolerance does: five times the longest interval over all ranks.
constexpr int kFactor = 5;
constexpr Millis kLeastLearned = std::chrono::seconds{30};
constexpr std::uint64_t kEnoughIntervals = 20;

Instant instant_of(std::uint64_t monotonic_ns) {
  return Instant{std::chrono::nanoseconds{monotonic_ns}};
}

std::uint64_t ns_of(Instant time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{time.time_since_epoch()}.count());
}

Millis between(std::uint64_t from_ns, std::uint64_t to_ns) {
  if (to_ns <= from_ns) return Millis{0};
  return std::chrono::ceil<Millis>(std::chrono::nanoseconds{to_ns - from_ns});
}

}  // namespace

void HangDetector::begin_round(Instant now, std::uint32_t workers) {
  began_ = now;
  restart_clocks(now);
  seen_.assign(workers, {});
}

void HangDetector::restart_clocks(Instant now) {
  floor_ = now;
  holds_.clear();
}

void HangDetector::leave_out(Instant from, Instant to) {
  constexpr std::size_t kMost = 64;
  if (holds_.size() == kMost) {
    floor_ = std::max(floor_, holds_.front().to);
    holds_.erase(holds_.begin());
  }
  holds_.push_back({from, to});
}

Millis HangDetector::held_between(Instant from, Instant to) const {
  Instant::duration held{0};
  for (const auto& hold : holds_)
    held += std::max(std::min(hold.to, to) - std::max(hold.from, from), Instant::duration{0});
  return std::chrono::duration_cast<Millis>(held);
}

Millis HangDetector::step_limit() const {
  if (policy_.kind == HangPolicy::Kind::fixed) return policy_.timeout;
  const bool is_known = before_.step > Millis{0} || intervals_ >= kEnoughIntervals;
  if (!is_known) return first_limit();
  return std::max(kFactor * std::max(before_.step, here_.step), kLeastLearned);
}

Millis HangDetector::first_limit() const {
  if (policy_.first_step) return *policy_.first_step;
  if (policy_.kind == HangPolicy::Kind::fixed)
    return std::max(kFirstOfFixed * policy_.timeout, kLeastFirst);
  if (before_.first == Millis{0}) return kUnknownFirst;
  return std::max(kFactor * before_.first, kLeastFirst);
}

// A look sees the last of several heartbeats: the time since the look before is the most that any
// interval among them took. Too long is safe, too short isn't.
void HangDetector::learn(Seen& seen, const heartbeat::Beat& beat) {
  const bool is_in_section = beat.section_since_ns != 0;
  if (beat.beats != seen.beats) {
    if (seen.beats < kFirstBeats && beat.beats >= kFirstBeats)
      here_.first = std::max(here_.first, between(ns_of(began_), beat.time_ns) -
                                              held_between(began_, instant_of(beat.time_ns)));
    if (seen.beats >= kFirstBeats && !is_in_section && !seen.was_in_section) {
      // Time in which the workers were stopped is no step's.
      const Instant since = std::max(floor_, instant_of(seen.time_ns));
      here_.step = std::max(here_.step, between(ns_of(since), beat.time_ns) -
                                            held_between(since, instant_of(beat.time_ns)));
      ++intervals_;
    }
    seen.beats = beat.beats;
    seen.was_in_section = is_in_section;
  }
  seen.time_ns = beat.time_ns;
  seen.was_in_section = seen.was_in_section || is_in_section;
}

SilentRank HangDetector::judge(LocalRank rank, const heartbeat::Beat& beat, Instant now) const {
  SilentRank found;
  found.rank = rank;
  Instant since = std::max(floor_, instant_of(beat.time_ns));
  if (beat.section_since_ns != 0) {
    found.section = beat.section;
    found.limit = Millis{beat.section_limit_ms};
    since = std::max(floor_, instant_of(beat.section_since_ns));
  } else {
    found.is_before_first_step = beat.beats < kFirstBeats;
    found.limit = found.is_before_first_step ? std::max(first_limit(), step_limit()) : step_limit();
    if (found.is_before_first_step && policy_.first_step) found.limit = *policy_.first_step;
  }
  const auto passed = std::chrono::duration_cast<Millis>(now - since);
  found.silent = std::max(passed - held_between(since, now), Millis{0});
  return found;
}

HangDetector::Look HangDetector::look(const std::vector<heartbeat::Beat>& beats,
                                      const std::vector<bool>& lives, Instant now) {
  Look result;
  const std::size_t count = std::min({beats.size(), lives.size(), seen_.size()});
  bool is_used = false;
  for (std::size_t i = 0; i < count; ++i) {
    learn(seen_[i], beats[i]);
    is_used = is_used || beats[i].time_ns != 0;
  }
  if (!policy_.is_on()) return result;
  for (std::size_t i = 0; i < count; ++i) {
    if (!lives[i]) continue;
    const auto found = judge(LocalRank{static_cast<std::uint32_t>(i)}, beats[i], now);
    if (found.limit <= Millis{0}) continue;  // a section that may take any time
    if (found.silent >= found.limit) {
      result.silent.push_back(found);
    } else {
      if (2 * found.silent >= found.limit) result.nearly.push_back(found);
      const Instant due = now + (found.limit - found.silent);
      result.next = result.next ? std::min(*result.next, due) : due;
    }
  }
  if (!is_used && !policy_.first_step && !result.silent.empty()) {
    result.silent.clear();
    result.is_unused = true;
  }
  if (result.silent.empty()) result.nearly.clear();
  return result;
}

std::optional<LearnedTimes> HangDetector::learned() const {
  if (intervals_ < kEnoughIntervals) return std::nullopt;
  // Half of what earlier runs saw is forgotten, unless this one was as slow.
  const auto merged = [](Millis before, Millis here) {
    return before == Millis{0} ? here : std::max(here, (before + here) / 2);
  };
  return LearnedTimes{merged(before_.step, here_.step), merged(before_.first, here_.first)};
}

}  // namespace acc::agent
