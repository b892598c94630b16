#pragma once

#include "common/duration.hpp"

#include <optional>

namespace acc::agent {

/// Does a host behind a transport without a daemon still answer? A silent job is asked for a mark
/// (AskContact, Here); any byte is an answer. Pure.
class ContactWatch {
 public:
  static constexpr Millis kEvery{5'000};     ///< between two looks
  static constexpr Millis kSilence{15'000};  ///< told from then on, as for a daemon

  /// @param begin  of the job there
  explicit ContactWatch(Instant begin) : looked_{begin}, since_{begin} {}

  struct Finding {
    bool asks = false;                    ///< no answer is under way
    std::optional<Instant> silent_since;  ///< nothing: it answers
  };
  /// @param heard  its last byte
  /// @param has_unread  there are bytes that our own reader delays
  [[nodiscard]] Finding look(Instant now, Instant heard, bool has_unread);
  void answered() { is_asked_ = false; }

 private:
  Instant looked_;
  Instant since_;  ///< silence before it doesn't count
  bool is_asked_ = false;
};

}  // namespace acc::agent
