#pragma once

#include "runtime/tcp/failure_detector.hpp"
#include "runtime/tcp/node_segment.hpp"

#include <poll.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime::tcp {

/// Waits at sockets, ended by a break of the group, and reports to the leader of the host.
class AbortableWait {
 public:
  /// @param detector  a leader's; else nullptr. @param connection  to the leader; a leader's is
  ///   empty.
  AbortableWait(NodeSegment& node, const RankPlacement& placement,
                std::unique_ptr<FailureDetector> control, UniqueFd connection);

  /// Waits until one of `waits` is ready.
  /// @throws Error the cause, when the group breaks; timed_out
  void wait(ActiveCall& active, std::vector<pollfd>& waits);
  /// The connection to `rank` ended during a call: the group breaks, with the cause from another
  /// rank if one arrives.
  [[noreturn]] void lose(ActiveCall& active, int rank, const std::string& how);
  /// The program of this rank has closed the connection to `rank`: the group breaks, by this rank.
  [[noreturn]] void lose_own(ActiveCall& active, int rank);

  /// To be called when the group broke in this process.
  void on_break() noexcept;
  /// Before an error of a broken group is thrown: waits until the other hosts have been sent the
  /// cause.
  void await_cause_sent() noexcept;
  /// A call's time is up: asks the leader who is late. Returns with the group broken.
  void find_late(ActiveCall& active);

 private:
  void notify(const Notice& notice) noexcept;
  /// Who is late, by what is known on this host.
  [[nodiscard]] Error find_late_here(const ActiveCall& active) const;
  [[nodiscard]] int broken_fd();
  /// @return true: the group broke within `limit`
  bool await_break(std::chrono::milliseconds limit);

  [[nodiscard]] static int poll_awake(std::vector<pollfd>& waits);
  [[nodiscard]] Clock::time_point poll_until(ActiveCall& active) const;
  void look(ActiveCall& active, short connection_events);

  NodeSegment& node_;
  const RankPlacement& placement_;
  std::atomic<bool> leader_gone_{false};  ///< the leader closed its end
  KeptFd connection_;
  std::unique_ptr<FailureDetector> detector_;
};

}  // namespace acc::runtime::tcp
