#pragma once

#include "agent/watch/stack_collection.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"
#include "common/ids.hpp"
#include "rendezvous/messages.hpp"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

/// Stacks of the ranks of all nodes of a job, which the agents exchange through the store of the
/// round: on request, and what each found about its silent ranks.
///
/// A request is counted in acc/stacks/asked and written to acc/stacks/ask/N. All agents wait there
/// for the next one: a question that the coordinator holds, without any traffic. Each answers with
/// acc/stacks/N/NODE_RANK. A hang is announced in the same way by acc/hang/N.
class NodeStacks {
 public:
  using Answer = std::function<void(rendezvous::KvReply)>;
  using TableAnswer = std::function<void(const std::vector<rendezvous::TableRow>&)>;
  /// All outlive this.
  struct Parts {
    boost::asio::io_context& io;
    StackCollection& stacks;                                 ///< of this node
    std::function<void(rendezvous::KvRequest, Answer)> ask;  ///< the store of the round
    std::function<void(TableAnswer)> table;
    /// A node has found silent ranks: this one or another.
    std::function<void()> on_hang;
  };
  explicit NodeStacks(Parts parts) : parts_{std::move(parts)} {}
  ~NodeStacks();
  NodeStacks(const NodeStacks&) = delete;
  NodeStacks& operator=(const NodeStacks&) = delete;

  void round_started(NodeRank own, std::uint32_t nodes);
  void round_ended();
  /// As that, as all workers here have finished: the other nodes are told so when they ask.
  void round_completed(evidence::NodeEvidence mine);

  /// Of all nodes within 10 s, as one text; a node that doesn't answer is named in it.
  void collect(const evidence::Question& question, StackCollection::Collected done);

  /// Tells all nodes that ranks here are silent: those whose ranks send no heartbeats judge, too.
  void announce_hang();
  /// Adds what the other nodes found about their silent ranks. Without `done`: takes back what this
  /// node told them. A node whose ranks go on tells nothing.
  void compare(const evidence::NodeEvidence& mine,
               std::function<void(StackCollection::Evidence)> done);

 private:
  struct Gathering;
  using GatheringPtr = std::shared_ptr<Gathering>;

  /// Calls `act` with the value of PREFIX/NUMBER, then waits for the next number.
  void wait_for(const std::string& prefix, std::uint64_t number,
                std::function<void(std::uint64_t, const std::string&)> act);
  void answer(std::uint64_t number, const evidence::Question& question);
  GatheringPtr begin(Millis patience, std::function<void(Gathering&)> done);
  /// Those that other nodes write under PREFIX/NODE_RANK.
  void ask_others(const GatheringPtr& gathering, const std::string& prefix, Millis patience);
  void request(const GatheringPtr& gathering, const evidence::Question& question);
  void write(Gathering& gathering, const evidence::Question& question, const StackCollection::Collected& done);
  void store(rendezvous::KvRequest::Op op, const std::string& key, std::string value = {});
  [[nodiscard]] std::string key_of_silent() const;
  /// Requests of other nodes are answered: the round goes on, here or there.
  [[nodiscard]] bool answers() const { return is_running_ || completed_; }
  void tell_completed(const std::string& key);
  void remove_later(const std::string& key);
  [[nodiscard]] std::size_t most_bytes() const;

  Parts parts_;
  NodeRank own_{0};
  std::uint32_t nodes_ = 1;
  bool is_running_ = false;
  struct Completed {
    evidence::NodeEvidence mine;
    Instant at;
  };
  std::optional<Completed> completed_;  ///< all workers here have finished
  std::uint64_t rounds_ = 0;            ///< started so far: a key belongs to one
  std::uint64_t next_hang_ = 1;
  std::vector<std::uint64_t> own_requests_;
  std::vector<std::weak_ptr<Gathering>> open_;
  Alive alive_;
};

}  // namespace acc::agent
