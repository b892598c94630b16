#pragma once

#include "agent/fanout/fan_out.hpp"
#include "agent/fanout/launch_course.hpp"
#include "agent/output/destinations.hpp"
#include "common/alive.hpp"
#include "common/clocks.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <utility>

namespace acc::agent {

/// The status line below the output of several hosts on a terminal: when it is drawn. Its words are
/// LaunchCourse's.
class LaunchStatusLine {
 public:
  /// All outlive it.
  LaunchStatusLine(boost::asio::io_context& io, Destinations& destinations,
                   const LaunchCourse& course, const FanOutState& state)
      : destinations_{destinations}, course_{course}, state_{state}, timer_{io} {}

  void open() { is_open_ = true; }
  [[nodiscard]] bool is_open() const { return is_open_; }
  /// Now, and from then on as often as its words may change.
  void draw();
  /// It is drawn no more.
  void close() { is_open_ = false; }

 private:
  Destinations& destinations_;
  const LaunchCourse& course_;
  const FanOutState& state_;
  boost::asio::steady_timer timer_;
  bool is_open_ = false;
  std::pair<FanOutPhase, std::uint64_t> shown_{};
  Instant in_phase_since_ = clock_now();
  Alive alive_;
};

}  // namespace acc::agent
