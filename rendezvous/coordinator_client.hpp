#pragma once

#include "rendezvous/dial_sequence.hpp"
#include "rendezvous/heartbeat_log.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"
#include "rendezvous/standby_choice.hpp"
#include "rendezvous/vote_counter.hpp"
#include "rendezvous/worker_lease.hpp"

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// One agent's side of the rendezvous as a pure state machine: which address to dial, which state
/// to keep, how long the lease lasts, which standby to vote for. It has no socket, clock or
/// process.
///
///   seeking → joining → joined → ended
///      ↑         │         │
///      └─────────┴─────────┘   connection lost: workers run on until the lease is over
namespace acc::rendezvous {

enum class LinkPhase { seeking, dialing, joining, joined, ended };
[[nodiscard]] constexpr bool seeks_coordinator(LinkPhase phase) {
  return phase != LinkPhase::joined && phase != LinkPhase::ended;
}

struct CoordinatorClientOptions {
  Join self;  ///< sent in every Join; state, epoch and vote are filled in
  /// For a node without a configured name: its name if another machine already has the first one.
  std::string other_name;
  HostPort seed_endpoint;    ///< address of the job's first coordinator
  bool serves_seed = false;  ///< that coordinator starts in this process
  std::string seek_hint;     ///< ends what the user reads while the first coordinator is sought
  Timings timings;           ///< until Welcome brings others
  Millis join_timeout{600'000};
  bool external_leader = false;  ///< etcd names the coordinator: no votes are counted
  std::uint64_t seed = 0;
};

/// This node's place in a round.
struct RoundPlace {
  Epoch epoch;
  NodeRank node_rank{0};
  std::uint32_t nodes = 1;
  EstablishedRound established;  ///< before this round, as long as it may not have started
  Rank first_rank{0};
  WorldSize world_size{1};
  HostPort master;
  RestartLedger ledger;
  std::uint32_t max_restarts = 0;
  std::string reason;
  bool had_progress = false;  ///< this node's workers, once they have ended
};

// ---- actions ----
/// Exactly one answer follows: link_up or dial_failed.
struct DialTo {
  HostPort to;
  bool here = false;  ///< the coordinator of this process
  Millis limit{3'000};
};
struct Hang {};  ///< ends the connection or the attempt to connect; no answer
struct Send {
  Frame frame;
};
/// Node rank 0: reserve a port for the workers' store, then call port_reserved.
struct OrderPort {
  Round round{0};
};
struct OrderRound {
  RoundPlace place;
};
struct OrderStop {
  Stop stop;
};
/// The round ends that this node has completed: nothing is left to stop here.
struct StopOfCompleted {
  Stop stop;
};
struct OrderSignal {
  Signal signal;
};
struct OrderClose {
  Close close;
};
/// The guardian kills the workers at `end`, unless a later one is set.
struct SetLease {
  Instant end;
};
struct ClearLease {};
/// The lease ended while there were workers.
struct OrderKill {
  std::string why;
};
/// This node gives up the job; its workers are gone.
struct GiveUp {
  enum class Why { unreachable, refused, no_majority, not_authentic };
  Why why;
  std::string text;
};
struct Tell {
  std::string text;  ///< empty: nothing is shown
  bool is_warning = false;
  /// From now on the coordinator is in this process, or no longer; nothing: as before.
  std::optional<bool> is_coordinator_here{};
};
/// Whether this node is connected to a coordinator.
struct LinkChanged {
  bool is_connected = false;
};
/// What the agent of this node must do, record or show its user.
using NodeOrder =
    std::variant<OrderPort, OrderRound, OrderStop, StopOfCompleted, OrderSignal, OrderClose,
                 SetLease, ClearLease, OrderKill, GiveUp, LinkChanged, Tell>;
struct RefuseVote {
  PeerId peer;
  Refused refused;
};
/// A majority voted for this node: create a Membership from it, with the voters' connections.
struct TakeOver {
  ElectionResult result;
};
using ClientAction = std::variant<DialTo, Hang, Send, OrderPort, OrderRound, OrderStop,
                                  StopOfCompleted, OrderSignal, OrderClose, SetLease, ClearLease,
                                  OrderKill, GiveUp, LinkChanged, Tell, RefuseVote, TakeOver>;
using ClientActions = std::vector<ClientAction>;

/// Why an attempt to connect failed, so that the message can name the cure.
struct DialFailure {
  bool not_authentic = false;  ///< a different secret; another attempt won't help
  bool refused = false;        ///< the host answers, and no process listens: waiting won't help
  std::string what;
};

class CoordinatorClient {
 public:
  CoordinatorClient(CoordinatorClientOptions options, Instant now);

  // ---- from the network ----
  ClientActions begin(Instant now);
  /// `local_address`: ours on this connection, by which others reach this node.
  ClientActions link_up(const std::string& local_address, Instant now);
  ClientActions dial_failed(const DialFailure& failure, Instant now);
  ClientActions link_lost(const LinkLoss& loss, Instant now);
  ClientActions received(const Frame& frame, Instant now);
  ClientActions tick(Instant now);
  [[nodiscard]] Instant next_deadline() const;
  /// Our clock may have stopped for a while (common/clocks.hpp): a lease continues only if the
  /// coordinator confirms it soon.
  ClientActions clock_doubted(Instant now);
  /// This process is no longer the coordinator.
  ClientActions stepped_down(const std::string& why, Instant now);
  /// etcd: the coordinator is at `to` now.
  ClientActions coordinator_is_at(const HostPort& to, Instant now);
  /// etcd: the coordinator is in this process now; other nodes reach it at `at`.
  ClientActions coordinator_is_here(const HostPort& at, Instant now);
  /// etcd: there is no job to return to.
  ClientActions job_is_gone(const std::string& why, Instant now);
  /// The coordinator in this process must not be one: another serves the job at its first address.
  ClientActions refused_elsewhere(const std::string& why);

  // ---- from other agents that lost their coordinator ----
  ClientActions vote_received(PeerId peer, const Join& join, const std::string& address,
                              Instant now);
  ClientActions vote_withdrawn(PeerId peer, Instant /*now*/) {
    votes_.remove(peer);
    return {};
  }

  // ---- from this node's supervisor ----
  ClientActions port_reserved(std::uint16_t port, Instant now);
  ClientActions worker_failed(const Failure& failure, Instant now);
  ClientActions workers_completed(bool progress, Instant now);
  ClientActions workers_stopped(bool progress, Instant now);
  ClientActions signal_received(int signo);
  /// Nothing without a coordinator: a later one would surprise.
  ClientActions restart_asked();
  ClientActions leaves(const std::string& why, Instant now);
  /// Where this agent accepts votes; before the Join that announces it.
  void set_listener(std::uint16_t port) { options_.self.listens = port; }
  /// How others reach this node if the coordinator is in this process and no connection shows it.
  void set_address_here(const std::string& address) { address_ = address; }
  /// Why no coordinator is found, for messages.
  void set_last_failure(const std::string& why) { last_failure_ = why; }
  /// The first coordinator is in this process; before begin().
  void set_serves_seed() { options_.serves_seed = coordinator_.is_here = true; }

  /// After the actions of each event were carried out: the change of is_connected(), if any.
  std::optional<LinkChanged> take_link_change();

  // ---- observers ----
  [[nodiscard]] LinkPhase phase() const { return phase_; }
  /// Since that heartbeat was sent; nothing: it isn't one of the last.
  [[nodiscard]] std::optional<Millis> round_trip_of(std::uint32_t heartbeat, Instant now) const {
    return heartbeats_.round_trip_of(heartbeat, now);
  }
  [[nodiscard]] bool is_connected() const { return phase_ == LinkPhase::joined; }
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] Term term() const { return term_; }
  [[nodiscard]] NodeState state() const { return state_; }
  [[nodiscard]] std::optional<Instant> lease_end() const { return lease_.end(); }
  /// True if workers may be started now.
  [[nodiscard]] bool may_run(Instant now) const { return lease_.is_valid(now); }
  [[nodiscard]] HostPort coordinator() const { return coordinator_.at; }
  /// In the round of epoch(); nodes: its size.
  [[nodiscard]] const RoundPlace& place() const { return place_; }
  [[nodiscard]] const CoordinatorClientOptions& options() const { return options_; }
  /// As received from the last coordinator: leases that it granted last up to timings().lease.
  [[nodiscard]] const Timings& timings() const { return timings_; }

 private:
  // seeking
  void seek(Instant now, ClientActions& out);
  void lose_link(const std::string& why, Instant now, ClientActions& out);
  void begin_search(Instant now);
  [[nodiscard]] std::vector<HostPort> targets(Instant now) const;
  [[nodiscard]] Millis backoff() {
    return dials_.backoff(is_at_start(), timings_.heartbeat_timeout);
  }
  void dial_next(Instant now, ClientActions& out);
  [[nodiscard]] std::map<NodeRank, std::string> names_of_round() const;
  void count_votes(Instant now, ClientActions& out);
  void send_voters_on(Instant now, ClientActions& out);
  void send_voters_to(const Refused& elsewhere, ClientActions& out);
  [[nodiscard]] Refused has_coordinator() const;
  [[nodiscard]] bool have_crossed(const Join& theirs) const;
  void give_up(GiveUp::Why why, std::string text, ClientActions& out);
  void consider_giving_up(Instant now, ClientActions& out);
  void forget_round(Instant now, ClientActions& out);
  void tell_seeking(Instant now, ClientActions& out);
  void seek_again(Millis delay, Instant now, ClientActions& out);
  [[nodiscard]] bool can_elect() const;
  /// Of a launch: this node never had a place in a round.
  [[nodiscard]] bool is_at_start() const { return epoch_.term.number == 0; }
  [[nodiscard]] Join make_join() const;
  [[nodiscard]] std::string sought() const;

  // as a member
  void workers_ended(NodeState as, bool progress, ClientActions& out);
  void on(const Frame& frame, const Welcome& welcome, Instant now, ClientActions& out);
  void on(const Frame& frame, const Refused& refused, Instant now, ClientActions& out);
  void on(const Frame& frame, const Assigned& assigned, Instant now, ClientActions& out);
  void on(const Frame& frame, const Start& start, Instant now, ClientActions& out);
  void on(const Frame& frame, const HeartbeatAck& ack, Instant now, ClientActions& out);
  void on(const Frame& frame, const Stop& stop, Instant now, ClientActions& out);
  void on(const Frame& frame, const Signal& signal, Instant now, ClientActions& out);
  void on(const Frame& frame, const Close& close, Instant now, ClientActions& out);
  void on(const Frame& frame, const Notice& notice, Instant now, ClientActions& out);
  void on(const Frame& frame, const Probe& probe, Instant now, ClientActions& out);
  template <class Other>
  void on(const Frame&, const Other&, Instant, ClientActions&) {}  // not meant for an agent
  [[nodiscard]] bool is_stale(const Frame& frame) const;
  void heartbeat(Instant now, ClientActions& out);
  void send(Message message, ClientActions& out) const;
  void send_ready(std::uint16_t port, Instant now, ClientActions& out);
  void renew_lease(std::uint32_t heartbeat, Millis granted, ClientActions& out);
  [[nodiscard]] bool has_workers() const { return state_ == NodeState::running; }
  void check_lease(Instant now, ClientActions& out);

  CoordinatorClientOptions options_;
  LinkPhase phase_ = LinkPhase::seeking;
  Timings timings_;
  struct {
    HostPort at;       ///< the last one that welcomed us, else seed_endpoint
    bool is_here;      ///< in this process
    std::string node;  ///< the name of its node; empty: none has welcomed us
    /// Of the one that began this round: a successor has a place of its own in the round.
    std::string began_round;
    bool has_closed = false;  ///< the last connection to it; it didn't just fall silent
  } coordinator_;
  bool was_connected_ = false;  ///< last result of take_link_change()
  std::string address_;

  // state of the node
  Term term_;    ///< of the last coordinator that welcomed us; never an older one
  Epoch epoch_;  ///< of the current assignment
  /// Orders for older rounds are stale. Never above the coordinator's own round: one that began the
  /// job anew may not know ours.
  Round oldest_round_{0};
  NodeState state_ = NodeState::nothing;
  NodeState joined_with_ = NodeState::nothing;  ///< as sent in the last Join
  RoundPlace place_;
  std::uint16_t port_ = 0;        ///< reserved for the workers' store of this round
  bool is_stop_ordered_ = false;  ///< of this round
  WorkerLease lease_;
  HeartbeatLog heartbeats_;
  /// What the next coordinator is told.
  struct Unsent {
    std::optional<Failure> failure;
    std::vector<int> signals;  ///< in their order, each once
  } unsent_;
  ToldFailure told_failure_;
  std::optional<GiveUp> give_up_when_empty_;

  // seeking and voting
  StandbyChoice standbys_;
  DialSequence dials_;
  VoteCounter votes_;
  Instant began_;
  Instant heard_{};  ///< last frame of the coordinator
  Instant next_heartbeat_{};
  Instant link_deadline_{};  ///< for connecting, or for the Welcome
  Instant ticked_;
  Instant next_tell_{};
  Instant gives_vote_at_{};  ///< joining: unless refused earlier
  std::string last_failure_;
};

[[nodiscard]] std::string_view to_string(LinkPhase phase);
/// As a user would write it: "10.0.0.1:29501", "[fd77::1]:29501".
[[nodiscard]] std::string address_text(const HostPort& place);

}  // namespace acc::rendezvous
