#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>

namespace acc::agent {

/// Ctrl-C in a terminal that a worker has. It goes to that worker alone, which may make of it what
/// it likes: pdb shows its prompt. A worker that doesn't heed it must still end, so the second one
/// within seconds counts as a Ctrl-C to the job. Pure: the time is passed in.
class TerminalInterrupts {
 public:
  enum class Answer {
    none,
    hint,  ///< the user should learn what another Ctrl-C will do
    stop,  ///< the job is meant
  };

  /// Presses farther apart than this have nothing to do with each other.
  static constexpr Millis kWindow{10'000};
  /// So long a worker has for going back to its prompt.
  static constexpr Millis kHeeds{300};
  /// So long after the first one the user is told what a second one does.
  static constexpr Millis kHint{2'000};

  /// Another worker has the terminal, or none.
  void reset() { *this = {}; }
  Answer press(Instant now);
  /// When to call look().
  [[nodiscard]] std::optional<Instant> due() const { return due_; }
  /// @param is_reading  the worker waits for input from the terminal
  Answer look(Instant now, bool is_reading);

 private:
  std::uint32_t presses_ = 0;  // that were not heeded
  Instant last_{};
  std::optional<Instant> due_;
  bool is_stopping_ = false;
};

}  // namespace acc::agent
