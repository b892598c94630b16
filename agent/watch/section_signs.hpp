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
/// other. An agent whose ranks fall silent reads the number early, and again before it judges them:
/// if others have counted on meanwhile, the silence begins anew. A sign that is lost or counted
/// twice costs one time-out at most, and a node that is gone gives none.
class SectionSigns {
 public:
  /// How many signs all nodes have given in this round; nothing: the coordinator doesn't answer.
  using Count = std::optional<std::int64_t>;
  struct Hooks {
    std::function<void()> give;  ///< a sign
    std::function<void(std::function<void(Count)>)> count;
  };
  explicit SectionSigns(Hooks hooks) : hooks_{std::move(hooks)} {}
  ~SectionSigns() { alive_.end(); }
  SectionSigns(const SectionSigns&) = delete;
  SectionSigns& operator=(const SectionSigns&) = delete;

  void begin_round();
  /// After each look. @param limit  how long a rank outside may be silent
  void note(const HangDetector::Look& look, Millis limit, Instant now);
  /// Whether the ranks that were found silent may wait for another node's section; told once,
  /// later.
  void ask(std::function<void(bool is_held)> done);

 private:
  void read(std::function<void(Count)> done);

  Hooks hooks_;
  std::uint64_t round_ = 0;            ///< answers of an earlier one don't count
  std::int64_t own_ = 0;               ///< signs that this node gave
  std::optional<Instant> given_;       ///< the last one, while a rank is in a section
  bool is_waiting_ = false;            ///< ranks here are silent, and the number was asked for
  std::optional<std::int64_t> early_;  ///< of the other nodes, when they fell silent
  Alive alive_;
};

}  // namespace acc::agent
