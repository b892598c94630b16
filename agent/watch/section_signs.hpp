#pragma once

#include "agent/watch/hang_detector.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace acc::agent {

/// Sections of ranks on other nodes: the ranks here may wait for them.
///
/// While a rank is in a section its agent counts signs up in the store of the round, one after the
/// other. An agent whose ranks are silent for a part of the time-out reads the number as often:
/// when others have counted on, the silence begins anew. So the nodes judge their ranks within
/// seconds of each other. A sign that is lost or counted twice changes little, and a node that is
/// gone gives none.
class SectionSigns {
 public:
  /// How many signs all nodes have given in this round; nothing: the coordinator doesn't answer.
  using Count = std::optional<std::int64_t>;
  struct Hooks {
    std::function<void()> give;  ///< a sign
    std::function<void(std::function<void(Count)>)> count;
  };
  /// @param on_answer  later than the question; whether others have given signs since the last one
  SectionSigns(Hooks hooks, std::function<void(bool has_risen)> on_answer)
      : hooks_{std::move(hooks)}, on_answer_{std::move(on_answer)} {}
  ~SectionSigns() { alive_.end(); }
  SectionSigns(const SectionSigns&) = delete;
  SectionSigns& operator=(const SectionSigns&) = delete;

  void begin_round();
  /// After each look. @param limit  how long a rank outside may be silent
  void note(const HangDetector::Look& look, Millis limit, Instant now);
  /// Whether silent ranks may be judged: an answer is seconds old, or none came for a time-out.
  [[nodiscard]] bool is_known(Millis limit, Instant now) const;

 private:
  void read(Instant now);

  Hooks hooks_;
  std::function<void(bool)> on_answer_;
  std::uint64_t round_ = 0;          ///< answers of an earlier one don't count
  std::int64_t own_ = 0;             ///< signs that this node gave
  std::optional<Instant> given_;     ///< the last one, while a rank is in a section
  std::optional<Instant> waits_;     ///< since then are ranks here silent
  std::optional<Instant> asked_;     ///< the last time, while they are
  std::optional<Instant> answered_;  ///< the question of then
  std::optional<std::int64_t> others_;
  Alive alive_;
};

}  // namespace acc::agent
