#include "agent/oom_watch.hpp"

#include <algorithm>
#include <chrono>

namespace acc::agent {

void OomKills::mark(std::uint64_t count) { marked_ = last_ = count; }

void OomKills::see(std::uint64_t count, Instant now) {
  if (count <= last_) return;
  last_ = count;
  rose_ = now;
}

std::optional<Millis> OomKills::last_before(Instant end) const {
  if (since_mark() == 0) return std::nullopt;
  return std::max(std::chrono::duration_cast<Millis>(end - rose_), Millis{0});
}

void OomWatch::begin_round() {
  memory_.find();
  kills_.mark(memory_.kills().value_or(0));
}

std::uint64_t OomWatch::kills() {
  look();
  return kills_.since_mark();
}

OomFacts OomWatch::facts(Instant end) {
  look();
  const auto facts = memory_.now();
  return {facts.oom_kills.has_value(), kills_.since_mark(), facts.limit_bytes, facts.peak_bytes,
          kills_.last_before(end)};
}

void OomWatch::look() { kills_.see(memory_.kills().value_or(0), clock_now()); }

}  // namespace acc::agent
