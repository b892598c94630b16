#pragma once

#include "common/alive.hpp"
#include "common/duration.hpp"
#include "common/ids.hpp"
#include "rendezvous/messages.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>

namespace acc::agent {

/// Which nodes of a job do nothing at all, for --stall_action restart: a node alone may wait for
/// another that works. Each node writes acc/stalled/NODE_RANK into the store of the round while its
/// workers do nothing, and when all of them have finished; one that stalls waits there for all
/// others: questions that the coordinator holds, without any traffic.
class StalledNodes {
 public:
  using Answer = std::function<void(rendezvous::KvReply)>;
  using Ask = std::function<void(rendezvous::KvRequest, Answer)>;  ///< the store of the round
  StalledNodes(boost::asio::io_context& io, Ask ask) : ask_{std::move(ask)}, pause_{io} {}
  ~StalledNodes() { alive_.end(); }
  StalledNodes(const StalledNodes&) = delete;
  StalledNodes& operator=(const StalledNodes&) = delete;

  void round_started(NodeRank own, std::uint32_t nodes);
  /// @param is_completed  all workers of this node have finished
  void round_ended(bool is_completed);

  /// The workers here do nothing. `on_all` once that is so on all nodes, unless go_on() or the end
  /// of the round comes first.
  void stalled(std::function<void()> on_all);
  void go_on();

 private:
  void tell(bool is_stalled);
  /// Looks at the nodes from `node` on, one after the other; each is waited for up to `patience`.
  void wait_for(std::uint32_t node, Millis patience);
  void try_again();
  [[nodiscard]] bool is_waiting(std::uint64_t turn) const { return on_all_ && turn == turn_; }

  Ask ask_;
  boost::asio::steady_timer pause_;
  NodeRank own_{0};
  std::uint32_t nodes_ = 1;
  std::uint64_t turn_ = 0;  ///< answers to questions of an earlier one are stale
  bool is_told_ = false;    ///< the others know that this node does nothing
  std::function<void()> on_all_;
  Alive alive_;
};

}  // namespace acc::agent
