#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace acc::agent {

/// Takes the exit status of orphans while a dead child stays unreaped: waitid for any child names
/// that one each time, so each child is asked for. In slices on the loop, with a pause between two
/// walks: there may be thousands, and each exit asks for a walk.
class OrphanReaper {
 public:
  struct Pace {
    std::chrono::milliseconds slice{3};   ///< one child at least
    std::chrono::milliseconds pause{50};  ///< before the next walk
  };
  using IsOther = std::function<bool(pid_t)>;

  /// @param is_other  whether a child is no orphan: others take its status
  OrphanReaper(boost::asio::io_context& io, IsOther is_other)
      : OrphanReaper{io, std::move(is_other), Pace{}} {}
  OrphanReaper(boost::asio::io_context& io, IsOther is_other, Pace pace);

  /// A child has ended beside a dead one. Its status is taken now or later.
  void reap_beside_dead();

 private:
  void begin_walk();
  void go_on();

  IsOther is_other_;
  Pace pace_;
  boost::asio::steady_timer turn_;  ///< the next slice, or the end of the pause
  bool is_busy_ = false;            ///< a walk or the pause after it
  bool is_due_ = false;             ///< a child has ended since the walk began
  std::vector<pid_t> children_;
  std::size_t next_ = 0;
};

}  // namespace acc::agent
