#pragma once

#include "agent/guardian_board.hpp"
#include "agent/lease_terms.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

/// The guardian's half of the lease (P1): when the moment on the board has passed, no worker of
/// this node lives on, whatever has become of the agent.
namespace acc::agent {

class LeaseWatch {
 public:
  /// `board` outlives the watch; null: there is no lease.
  LeaseWatch(pid_t agent, GuardianBoard* board) : agent_{agent}, board_{board} {}

  /// Kills all descendants of the agent if the lease is over. To be called at each wake-up.
  void check();
  /// How long nothing is to be done; nothing: until the agent rings.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> may_sleep() const;
  [[nodiscard]] bool has_lease() const;
  /// Becomes readable when the wall clock is set or the machine comes back from suspension; -1
  /// while there is no lease.
  [[nodiscard]] int clock_fd() const { return clock_fd_.get(); }
  /// The lease timer is dead, and the kernel has killed the workers.
  void timer_ended();

 private:
  [[nodiscard]] LeaseState judge() const;
  void watch_clock();
  void shorten(std::int64_t ends_ns);
  void begin_killing(std::int64_t ends);
  /// Whether a process was in it.
  bool kill_cgroup() const;
  bool kill_descendants();
  void tell();

  pid_t agent_;
  GuardianBoard* board_;
  UniqueFd clock_fd_;
  /// The lease that is over, by its end; 0: none is. Another one may have come and gone unseen.
  std::int64_t over_ = 0;
  std::int64_t hunt_until_ = 0;
  bool found_living_ = false;  ///< in the last look, while it is over
  bool has_killed_ = false;
  bool has_told_ = false;
  bool is_timer_lost_ = false;
  bool is_doubted_ = false;  ///< the lease ends early, as it was not confirmed
};

}  // namespace acc::agent
