#pragma once

#include "runtime/tcp/control.hpp"
#include "runtime/tcp/room.hpp"

#include <poll.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime::hosts {

/// How a rank waits at sockets without missing that its group broke, and how it tells its leader.
class Lifeline {
 public:
  /// @param control  a leader's; else nullptr. @param line  to the leader; a leader's is empty.
  Lifeline(Room& room, const Placement& placement, std::unique_ptr<Control> control, UniqueFd line);

  /// Until one of `waits` is ready.
  /// @throws Error the cause, when the room breaks; timed_out
  void wait(Turn& turn, std::vector<pollfd>& waits);
  /// A connection to `rank` ended in the middle: the group breaks, by the cause if one is on its
  /// way.
  [[noreturn]] void lose(Turn& turn, int rank, const std::string& how);

  /// The room broke in this process.
  void broke() noexcept;
  /// Before an error of a broken room is thrown: the other hosts are told first.
  void tell_others_first() noexcept;
  /// A turn's time is up. Returns when the room is broken, or nobody answered.
  void find_late(Turn& turn);

 private:
  void tell(const Note& note) noexcept;
  [[nodiscard]] int broken_fd() const;
  /// @return is the room broken, after at most `limit`?
  bool await_break(std::chrono::milliseconds limit);

  [[nodiscard]] static int poll_awake(std::vector<pollfd>& waits);
  [[nodiscard]] Clock::time_point look_at(Turn& turn) const;
  void look(Turn& turn, short line_events);

  Room& room_;
  const Placement& placement_;
  std::atomic<bool> alone_{false};  ///< the leader's end of the line is closed
  UniqueFd line_;
  std::unique_ptr<Control> control_;
};

}  // namespace acc::runtime::hosts
