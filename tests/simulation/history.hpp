#pragma once

#include "tests/simulation/clock.hpp"

#include <deque>
#include <ostream>
#include <string>

namespace acc::simulation {

/// Readable log of events: time, process, event. Off during the search for a failing seed, on when
/// that seed is replayed.
class History {
 public:
  explicit History(bool on) : on_{on} {}
  [[nodiscard]] bool is_on() const { return on_; }
  void add(Time now, const std::string& who, const std::string& what);
  void print(std::ostream& out) const;

 private:
  static constexpr std::size_t kLines = 20'000;
  bool on_;
  std::size_t dropped_ = 0;
  std::deque<std::string> lines_;
};

}  // namespace acc::simulation
