#pragma once

#include "common/duration.hpp"

#include <cstdint>

/// Whether rank 0 is let go before the other ranks of a warm start, and how long they wait for it
/// (pure). Rank 0's worker serves its framework's store on MASTER_PORT. Forked workers reach it at
/// the same moment, and torch's client whose first connection is refused sleeps for a second: five
/// times the duration of the whole restart.
///
/// Only a job whose rank 0 was seen to listen there a second after the start of its round gets it;
/// where it hasn't listened in time once, the others wait no more.
namespace acc::agent::preload {

class HeadStart {
 public:
  /// torch's store listens 5 to 10 ms after its worker was let go.
  static constexpr Millis kLongest{50};
  static constexpr Millis kStep{1};  ///< between two looks

  /// @param store_port  of rank 0's worker, if that is one of this node; else 0
  void begin_round(std::uint16_t store_port) { port_ = store_port; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Whether rank 0 listens a second after the start of the round.
  void on_looked(bool is_listening) { was_listening_ = is_listening; }
  [[nodiscard]] bool is_due() const { return port_ != 0 && was_listening_ && !was_in_vain_; }

  /// Rank 0 was let go. @return the others are to be let go, too
  [[nodiscard]] bool is_over(bool is_listening, Millis since) {
    was_in_vain_ = !is_listening && since >= kLongest;
    return is_listening || was_in_vain_;
  }

 private:
  std::uint16_t port_ = 0;
  bool was_listening_ = false;
  bool was_in_vain_ = false;
};

}  // namespace acc::agent::preload
