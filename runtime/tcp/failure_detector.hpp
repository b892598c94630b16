#pragma once

#include "common/kept_fd.hpp"
#include "runtime/tcp/node_segment.hpp"

#include <memory>
#include <vector>

namespace acc::runtime::tcp {

/// A message from a rank to the leader of its host.
struct Notice {
  enum class Kind : std::uint32_t {
    broke = 1,  ///< the group broke: see the node segment
    late,       ///< the sender timed out: which ranks are late?
  };
  Kind kind = Kind::broke;
  std::uint32_t number = 0;  ///< of the collective; 0: a message
  std::int32_t peer = -1;    ///< of the message
  Operation operation = Operation::none;
  std::int64_t limit_ms = 0;
};

/// A thread of each leader, connected to the leaders of all hosts and to the ranks of its own. It
/// passes the cause of a break on to the other hosts, and when a rank times out it asks all hosts
/// which ranks are late, so that every rank throws the same error. Otherwise it sleeps.
class FailureDetector {
 public:
  /// @param leaders  by host; the own one is empty. @param connections  by index; the own one is
  ///   empty.
  FailureDetector(NodeSegment& node, const RankPlacement& placement, std::vector<UniqueFd> leaders,
                  std::vector<UniqueFd> connections);
  /// Reports to the other hosts that this rank has left, after the cause if there is one.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// The leader's own notices; any thread.
  void notify(const Notice& notice) noexcept;
  /// Waits briefly until the cause of a broken group has been sent to the other hosts: a process
  /// that ends because of its error must not end before.
  void await_cause_sent() noexcept;
  /// Becomes readable when the group is known to be broken.
  [[nodiscard]] int broken_fd() const noexcept;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace acc::runtime::tcp
