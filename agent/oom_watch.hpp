#pragma once

#include "agent/memory_limit.hpp"
#include "agent/report.hpp"
#include "common/duration.hpp"

#include <cstdint>
#include <optional>

namespace acc::agent {

/// The kernel's counter of out-of-memory kills, with the time of its last rise (pure).
class OomKills {
 public:
  /// Kills so far are of others, or of an attempt that is over.
  void mark(std::uint64_t count);
  void see(std::uint64_t count, Instant now);
  [[nodiscard]] std::uint64_t since_mark() const { return last_ - marked_; }
  /// From the last kill to `end`; 0: it was seen after `end`. Nothing: none since mark().
  [[nodiscard]] std::optional<Millis> last_before(Instant end) const;

 private:
  std::uint64_t marked_ = 0;
  std::uint64_t last_ = 0;
  Instant rose_;
};

/// Counts and dates the out-of-memory kills in this process's memory cgroup. A killed helper is
/// reaped by its worker, so that nothing tells us of it but the counter: it is read when the agent
/// looks at heartbeats, so that a job without them wakes nothing up.
class OomWatch {
 public:
  /// Before the workers are started, or the first of many might be out of memory uncounted.
  void begin_round();
  /// To be called now and then: a kill has the time of the look that saw it.
  void look();
  /// By the kernel in this attempt, of any process in the job's cgroup.
  [[nodiscard]] std::uint64_t kills();
  /// Of a worker that ended at `end`.
  [[nodiscard]] OomFacts facts(Instant end);

 private:
  MemoryWatch memory_;
  OomKills kills_;
};

}  // namespace acc::agent
