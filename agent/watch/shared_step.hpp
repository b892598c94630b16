#pragma once

#include "common/alive.hpp"
#include "common/duration.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace acc::agent {

/// The longest step of all nodes' ranks, for --hang_timeout auto: with limits of their own the node
/// with the shortest would judge first, and know nothing of the others' ranks. It lies in the store
/// of the round; a node raises it when its own has grown, and reads it while its ranks are silent.
class SharedStep {
 public:
  /// The text that is there afterwards, empty where there is none; nothing: no answer.
  using Answer = std::function<void(std::optional<std::string>)>;
  /// Replaces `expected` by `value`, if it is what is there; empty: nothing is.
  using Exchange = std::function<void(std::string expected, std::string value, Answer)>;
  SharedStep(Exchange exchange, std::function<void(Millis)> on_longer)
      : exchange_{std::move(exchange)}, on_longer_{std::move(on_longer)} {}
  ~SharedStep() { alive_.end(); }
  SharedStep(const SharedStep&) = delete;
  SharedStep& operator=(const SharedStep&) = delete;

  void begin_round();
  /// After each look. @param own  the longest step that this node has learned
  void note(Millis own, bool is_any_waiting, Instant now);

 private:
  void ask(Millis own, Instant now);

  Exchange exchange_;
  std::function<void(Millis)> on_longer_;
  std::uint64_t round_ = 0;
  std::string text_;  ///< what was there last
  Millis known_{0};
  std::optional<Instant> asked_;
  Alive alive_;
};

}  // namespace acc::agent
