#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>

namespace acc::agent {

/// When a worker that is silent counts as hanging; part of the plan.
struct HangPolicy {
  enum class Kind : std::uint8_t {
    off,
    fixed,    ///< after `timeout` without a heartbeat
    learned,  ///< after a multiple of the longest time between two heartbeats
  };
  Kind kind = Kind::off;
  Millis timeout{0};
  /// --first_step_timeout: until a worker's second heartbeat; nothing: a longer one of our own.
  std::optional<Millis> first_step;
  /// --stall_timeout, for programs that report nothing; 0: off.
  Millis stall{0};
  bool stall_restarts = false;
  [[nodiscard]] bool is_on() const { return kind != Kind::off; }
};

}  // namespace acc::agent
