#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>

namespace acc::agent {

/// Ctrl-C in a terminal whose foreground group is a worker's. The worker alone gets the SIGINT and
/// may use it for its own purposes: pdb shows its prompt. A worker that ignores it must still end,
/// so a second Ctrl-C within seconds is meant for the job. Pure: the time is passed in.
class TerminalInterrupts {
 public:
  enum class Answer {
    none,
    hint,  ///< the user should learn what another Ctrl-C will do
    stop,  ///< the job is meant
  };

  /// Presses farther apart than this are unrelated.
  static constexpr Millis kWindow{10'000};
  /// Time for a worker to return to its prompt.
  static constexpr Millis kHeeds{300};
  /// Time after the first press until the user learns what a second one does.
  static constexpr Millis kHint{2'000};

  /// Another worker has the terminal, or none.
  void reset() { *this = {}; }
  Answer press(Instant now);
  /// When to call look().
  [[nodiscard]] std::optional<Instant> due() const { return due_; }
  /// @param is_reading  the worker waits for input from the terminal
  Answer look(Instant now, bool is_reading);

 private:
  std::uint32_t presses_ = 0;  // that the worker did not react to
  Instant last_{};
  std::optional<Instant> due_;
  bool is_stopping_ = false;
};

}  // namespace acc::agent
