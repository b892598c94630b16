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
/// workers do nothing, and when all of them have finished; one that stalls waits there for the
/// others, one after the other: a question that the coordinator holds, without any traffic.
class StalledNodes {
 public:
  using Answer = std::function<void(rendezvous::KvReply)>;
  using Ask = std::function<void(rendezvous::KvRequest, Answer)>;  ///< the store of the round
  StalledNodes(boost::asio::io_context& io, Ask ask) : ask_{std::move(ask)}, pause_{io} {}
  ~StalledNodes() { alive_.end(); }
  StalledNodes(const StalledNodes&) = delete;
  StalledNodes& operator=(const StalledNodes&) = delete;

  void round_started(NodeRank own, std::uint32_t nodes);
  /// @param tells  all workers of this node have finished, and others may ask for that
  void round_ended(bool tells);

  /// The workers here do nothing. `on_all` once that is so on all nodes, unless go_on() or the end
  /// of the round comes first.
  void stalled(std::function<void()> on_all);
  void go_on();

 private:
  void tell(bool is_stalled);
  /// Looks at the nodes from `node` on, one after the other; each is waited for up to `patience`.
  void wait_for(std::uint32_t node, Millis patience);
  void on_answer(std::uint32_t node, Millis patience, const rendezvous::KvReply& reply);

  Ask ask_;
  boost::asio::steady_timer pause_;
  NodeRank own_{0};
  std::uint32_t nodes_ = 1;
  std::uint64_t rounds_ = 0;  ///< started and ended: answers belong to one
  std::uint64_t turn_ = 0;    ///< of stalls: what was seen in an earlier one is stale
  /// A question is held: that of an earlier stall, too, which can't be taken back.
  bool is_asking_ = false;
  bool is_told_ = false;  ///< the others know that this node does nothing
  std::function<void()> on_all_;
  Alive alive_;
};

}  // namespace acc::agent
