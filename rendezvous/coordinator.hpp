#pragma once

#include "common/alive.hpp"
#include "common/clocks.hpp"
#include "rendezvous/answered_requests.hpp"
#include "rendezvous/deadline_timer.hpp"
#include "rendezvous/kv_store.hpp"
#include "rendezvous/link.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/restored_writes.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace acc::rendezvous {

/// A membership and the store of its round, with links to the agents. One loop.
class Coordinator {
 public:
  struct Hooks {
    std::function<void(const std::string& text, bool is_warning)> tell;
    /// Another coordinator exists, or may. All links are closed by then.
    std::function<void(const std::string& why)> stepped_down;
    std::function<void(const Close&)> job_over;
    // ---- only if etcd elected it ----
    /// Until when no other node can be coordinator, and when that was requested; by boot_now().
    struct LeadershipTerm {
      Instant asked = Instant::min();
      Instant until = Instant::min();
    };
    std::function<LeadershipTerm()> leadership_term;
    /// Answered by committed().
    std::function<void(const RoundRecord& record)> commit;
  };
  using Links = std::unordered_map<std::uint64_t, std::shared_ptr<Link>>;

  Coordinator(boost::asio::io_context& io, MembershipOptions options, Hooks hooks);
  /// Elected: `voters` are the links behind the peers of `result`.
  Coordinator(boost::asio::io_context& io, MembershipOptions options, const ElectionResult& result,
              Links voters, Hooks hooks);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// A peer sent a Join.
  void admit(PeerId peer, std::shared_ptr<Link> link, const Join& join);
  /// An elected coordinator reported its address.
  void moved(const HostPort& to);
  /// The record that the previous coordinator left in etcd; before all other events.
  void inherit(const RoundRecord& last);
  void committed(const Epoch& epoch);
  void note_etcd_trouble(const std::string& text) { membership_.note_etcd_trouble(text); }
  /// Closes all links, and calls the hook.
  void step_down(const std::string& why) { act(StepDown{why}); }
  /// Calls `done` when all agents have received the end of the job and disconnected, or after
  /// `limit`. Members whose connection was lost before the end, and that don't count as lost
  /// themselves, are waited for: they return.
  void when_all_left(Millis limit, std::function<void()> done);

  /// Its own node has left the job: calls `done` when the others can do without this coordinator.
  void when_dispensable(std::function<void()> done);

  [[nodiscard]] const Membership& membership() const { return membership_; }
  /// No round has begun, none of those who joined is here any more, and no worker of another
  /// coordinator of which they told can live.
  [[nodiscard]] bool is_deserted() const;

 private:
  /// By boot_now(), as all times of the membership. Handles a doubt about the clocks first.
  Instant time_of_event();
  void listen_to(PeerId peer);
  void on_frame(PeerId peer, const Frame& frame);
  void on_lost(PeerId peer, const LinkLoss& loss);
  void perform(const MembershipActions& actions);
  void act(const SendTo& a);
  void act(const SendAll& a);
  void act(const ClosePeer& a);
  void act(const ResetStore& a);
  void act(const CommitRound& a);
  void act(const TellHere& a);
  void act(const StepDown& a);
  void act(const JobOver& a);
  void carry_out(std::uint64_t peer, KvRequest request);
  void answer(const KvStore::Answers& answers);
  void send(std::uint64_t peer, const KvReply& reply);
  void restore(PeerId peer, const Frame& frame, const KvRestore& part);
  void note_replay_end(PeerId peer);
  void await_replay(PeerId peer);
  [[nodiscard]] bool is_restoring() const;
  void answer_held();
  void add_agent(PeerId peer, const Join& join);
  void forget(PeerId peer);
  void arm();
  void on_timer();
  void check_left();
  void check_dispensable();

  boost::asio::io_context& io_;
  Hooks hooks_;
  Links links_;
  struct Agent {
    NodeId node;
    std::size_t workers = 0;
    explicit Agent(const Join& join) : node{join.node}, workers{join.slots} {}
  };
  std::unordered_map<std::uint64_t, Agent> agents_;  ///< by peer, as it joined
  std::size_t workers_ = 0;                          ///< of all of them
  Membership membership_;
  KvStore store_;
  RestoredWrites restored_;
  AnsweredRequests answered_;
  struct Held {
    std::uint64_t peer = 0;
    KvRequest request;
  };
  std::vector<Held> held_;         ///< until the store is complete again, after an election
  std::set<std::uint64_t> whole_;  ///< peers whose agents have replayed all their writes
  ClockWatch clocks_;
  DeadlineTimer timer_;
  boost::asio::steady_timer close_deadline_;
  std::function<void()> all_left_;
  std::set<std::string> uninformed_;  ///< members without a connection as the job ended
  std::function<void()> dispensable_;
  Alive alive_;
};

}  // namespace acc::rendezvous
