#include "agent/watch/hang_detector.hpp"

#include <algorithm>
#include <chrono>

namespace acc::agent {

namespace {

using heartbeat::kFirstBeats;

constexpr Millis kLeastFirst = std::chrono::minutes{10};
constexpr Millis kUnknownFirst = std::chrono::minutes{30};
constexpr int kFirstOfFixed = 3;  // times the time-out
// As NVIDIA's fault tolerance does: five times the longest interval over all ranks.
constexpr int kFactor = 5;
constexpr Millis kLeastLearned = std::chrono::seconds{30};
constexpr std::uint64_t kEnoughIntervals = 20;
// So long, or an eighth of its limit, is a rank silent before other nodes are asked.
constexpr Millis kWaiting = std::chrono::seconds{6};

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
  looked_ = outside_floor_ = now;
  first_step_ = Millis{0};
  seen_.assign(workers, {});
  for (auto& seen : seen_) seen.began = seen.step_since = now;
  restart_clocks(now);
}

void HangDetector::restart_clocks(Instant now) {
  floor_ = now;
  holds_.clear();
  for (auto& seen : seen_) seen.waited = {};
}

void HangDetector::leave_out(Instant from, Instant to) {
  constexpr std::size_t kMost = 64;
  if (holds_.size() == kMost) {
    floor_ = std::max(floor_, holds_.front().to);
    holds_.erase(holds_.begin());
  }
  holds_.push_back({from, to});
}

void HangDetector::wait_for_other_nodes(Instant now) {
  outside_floor_ = now;
  for (auto& seen : seen_) {
    seen.waited = {};
    seen.was_in_section = true;
  }
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
  // What a run before took may be another job's: too long is safe, too short isn't.
  const Millis first = intervals_ < kEnoughIntervals ? first_step_ : Millis{0};
  return std::max(kFactor * std::max({before_.step, here_.step, elsewhere_, first}), kLeastLearned);
}

Millis HangDetector::first_limit() const {
  if (policy_.first_step) return *policy_.first_step;
  if (policy_.kind == HangPolicy::Kind::fixed)
    return std::max(kFirstOfFixed * policy_.timeout, kLeastFirst);
  if (before_.first == Millis{0}) return kUnknownFirst;
  return std::max(kFactor * before_.first, kLeastFirst);
}

// What its page said of the program before is nothing of the one that has the page now, or of
// nobody where a script of several programs is between two. A successor by exec has the same pid.
void HangDetector::note_successors(const std::vector<heartbeat::Beat>& beats, Instant now) {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    auto& seen = seen_[i];
    const auto& beat = beats[i];
    const bool had_any = seen.pid != 0 || seen.time_ns != 0 || seen.is_successor;
    const bool is_other =
        beat.pid != seen.pid || beat.beats < seen.beats || (beat.time_ns == 0 && seen.time_ns != 0);
    if (had_any && is_other) {
      seen = {};
      seen.is_successor = true;
      seen.began = seen.step_since = now;
    }
    seen.pid = beat.pid;
  }
}

// A look sees the last of several heartbeats: the time since the look before is the most that any
// interval among them took. Too long is safe, too short isn't. A step in which one rank was in a
// section is no step of any other's, either: they waited for it.
void HangDetector::learn(Seen& seen, const heartbeat::Beat& beat, bool is_any_in_section) {
  const bool is_in_section = is_any_in_section || beat.section_since_ns != 0;
  if (beat.beats != seen.beats) {
    if (seen.beats < kFirstBeats && beat.beats >= kFirstBeats)
      here_.first = std::max(here_.first, between(ns_of(seen.began), beat.time_ns) -
                                              held_between(seen.began, instant_of(beat.time_ns)));
    // Time in which the workers were stopped is no step's.
    const Instant since = std::max(floor_of(seen), instant_of(seen.time_ns));
    const Millis interval =
        between(ns_of(since), beat.time_ns) - held_between(since, instant_of(beat.time_ns));
    const bool is_step = seen.beats > 0 && !is_in_section && !seen.was_in_section;
    if (is_step && seen.beats >= kFirstBeats) {
      here_.step = std::max(here_.step, interval);
      ++intervals_;
    } else if (is_step && beat.beats >= kFirstBeats) {
      first_step_ = std::max(first_step_, interval);
    }
    seen.beats = beat.beats;
    seen.was_in_section = is_in_section;
  }
  seen.time_ns = beat.time_ns;
  seen.was_in_section = seen.was_in_section || is_in_section;
}

bool HangDetector::is_in_section(std::size_t i, const heartbeat::Beat& beat, Instant now) const {
  if (beat.section_since_ns == 0) return false;
  const auto found = judge(LocalRank{static_cast<std::uint32_t>(i)}, beat, now);
  return found.limit <= Millis{0} || found.silent < found.limit;
}

// All sections of this time as one: it is about a second. Of one that has ended, what came after it
// is taken for it up to the rank's last sign of life.
HangDetector::Hold HangDetector::time_in_sections(const std::vector<heartbeat::Beat>& beats,
                                                  const std::vector<bool>& lives,
                                                  Instant now) const {
  Hold all{now, looked_};
  const auto add = [&](Instant from, Instant to) {
    all.from = std::min(all.from, std::max(from, looked_));
    all.to = std::max(all.to, std::min(to, now));
  };
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const auto& beat = beats[i];
    if (beat.section_since_ns == 0) {
      if (seen_[i].is_inside) add(looked_, instant_of(beat.time_ns));
    } else if (lives[i]) {
      const Instant since = instant_of(beat.section_since_ns);
      const bool is_over = !is_in_section(i, beat, now);
      if (!is_over || looked_ < since + Millis{beat.section_limit_ms})
        add(since, is_over ? since + Millis{beat.section_limit_ms} : now);
    }
  }
  return all;
}

void HangDetector::note_waiting(const std::vector<heartbeat::Beat>& beats,
                                const std::vector<bool>& lives, Instant now) {
  const auto sections = time_in_sections(beats, lives, now);
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    auto& seen = seen_[i];
    if (beats[i].time_ns != seen.time_ns) seen.waited = {};
    const Instant from = std::max({sections.from, floor_of(seen), instant_of(beats[i].time_ns)});
    if (from < sections.to) seen.waited += sections.to - from - held_between(from, sections.to);
    seen.is_inside = beats[i].section_since_ns != 0;
    if (beats[i].step == seen.step) continue;
    seen.step = beats[i].step;
    seen.step_since = now;
  }
  looked_ = now;
}

// A rank that tries something again and again, and sends heartbeats meanwhile.
bool HangDetector::is_stuck(const Seen& seen, const heartbeat::Beat& beat, Millis limit,
                            Instant now) const {
  if (beat.beats < kFirstBeats || beat.section_since_ns != 0) return false;
  const Instant since = std::max(floor_, seen.step_since);
  return 2 * (now - since - held_between(since, now)) >= limit;
}

SilentRank HangDetector::judge(LocalRank rank, const heartbeat::Beat& beat, Instant now) const {
  SilentRank found;
  found.rank = rank;
  const Instant floor = floor_of(seen_[rank.value()]);
  Instant since = std::max(floor, instant_of(beat.time_ns));
  if (beat.section_since_ns != 0) {
    found.section = beat.section;
    found.limit = Millis{beat.section_limit_ms};
    since = std::max(floor, instant_of(beat.section_since_ns));
  } else {
    since = std::max(since, outside_floor_);
    found.is_before_first_step = beat.beats < kFirstBeats;
    found.limit = found.is_before_first_step ? std::max(first_limit(), step_limit()) : step_limit();
    found.is_successor = beat.beats == 0 && seen_[rank.value()].is_successor;
    if (found.is_before_first_step && policy_.first_step) found.limit = *policy_.first_step;
  }
  const auto passed = std::chrono::duration_cast<Millis>(now - since);
  found.silent = std::max(passed - held_between(since, now), Millis{0});
  return found;
}

// A rank that hangs before its first step holds up the others, so long as they meet in each step.
void HangDetector::spare_ranks_without_heartbeats(const std::vector<heartbeat::Beat>& beats,
                                                  const std::vector<bool>& lives,
                                                  Look& look) const {
  const auto is_silent = [&](std::size_t i) {
    return std::ranges::any_of(look.silent, [i](const SilentRank& one) {
      return one.rank == LocalRank{static_cast<std::uint32_t>(i)};
    });
  };
  bool does_any_go_on = false;
  for (std::size_t i = 0; i < seen_.size(); ++i)
    does_any_go_on =
        does_any_go_on || (lives[i] && beats[i].time_ns != 0 && !is_silent(i));
  if (!does_any_go_on) return;
  std::erase_if(look.silent, [&](const SilentRank& one) {
    if (beats[one.rank.value()].time_ns != 0) return false;
    look.without_heartbeats.push_back(one.rank);
    return true;
  });
}

HangDetector::Look HangDetector::look(const std::vector<heartbeat::Beat>& beats,
                                      const std::vector<bool>& lives, Instant now) {
  auto result = look_beside_silent(beats, lives, now);
  if (result.silent.empty()) {
    result.nearly.clear();
    result.stuck.clear();
  }
  return result;
}

HangDetector::Look HangDetector::look_beside_silent(const std::vector<heartbeat::Beat>& beats,
                                                    const std::vector<bool>& lives, Instant now) {
  Look result;
  const std::size_t count = std::min({beats.size(), lives.size(), seen_.size()});
  if (count < seen_.size()) return result;
  note_successors(beats, now);
  bool is_used = false;
  for (std::size_t i = 0; i < count; ++i) {
    is_used = is_used || beats[i].time_ns != 0;
    if (lives[i] && is_in_section(i, beats[i], now))
      result.in_section.push_back(LocalRank{static_cast<std::uint32_t>(i)});
  }
  note_waiting(beats, lives, now);
  for (std::size_t i = 0; i < count; ++i) learn(seen_[i], beats[i], !result.in_section.empty());
  if (!policy_.is_on()) return result;
  for (std::size_t i = 0; i < count; ++i) {
    if (!lives[i]) continue;
    const LocalRank rank{static_cast<std::uint32_t>(i)};
    auto found = judge(rank, beats[i], now);
    if (found.limit <= Millis{0}) continue;  // a section that may take any time
    const bool was_long = found.silent >= found.limit;
    const Instant last = std::max(floor_of(seen_[i]), instant_of(beats[i].time_ns));
    if (found.section.empty() &&
        now - last - held_between(last, now) >= std::min(found.limit / 8, kWaiting))
      result.is_any_waiting = true;
    const bool was_half = 2 * found.silent >= found.limit;
    if (found.section.empty()) {
      if (was_long && !result.in_section.empty()) result.held.push_back(found);
      const auto waited = std::chrono::duration_cast<Millis>(seen_[i].waited);
      found.silent = std::max(found.silent - waited, Millis{0});
    }
    if (found.silent >= found.limit) {
      result.silent.push_back(found);
    } else {
      if (was_half) result.nearly.push_back(found);
      if (!was_half && is_stuck(seen_[i], beats[i], found.limit, now)) result.stuck.push_back(rank);
      const Instant due = now + (found.limit - found.silent);
      result.next = result.next ? std::min(*result.next, due) : due;
    }
  }
  if (!is_used && !policy_.first_step && !result.silent.empty()) {
    result.silent.clear();
    // Of a script of several programs the last ones may send none: that is no news.
    result.is_unused = std::ranges::none_of(seen_, &Seen::is_successor);
  }
  if (is_used && !policy_.first_step) spare_ranks_without_heartbeats(beats, lives, result);
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
