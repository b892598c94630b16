#pragma once

#include "rendezvous/authority.hpp"
#include "rendezvous/departures.hpp"
#include "rendezvous/failures.hpp"
#include "rendezvous/given_up_assignments.hpp"
#include "rendezvous/inquiries.hpp"
#include "rendezvous/join_rules.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/node_order.hpp"
#include "rendezvous/node_table.hpp"
#include "rendezvous/peer.hpp"
#include "rendezvous/place_table.hpp"
#include "rendezvous/round_record.hpp"
#include "rendezvous/vote_counter.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// State machine of a coordinator (pure): the nodes of the job, the current round and its ranks,
/// the restarts spent. It has no socket and no clock: each event carries its time.
///
///   gathering → assigning → running → stopping → gathering …
///       ↑           │                    │  └→ backing_off → gathering
///       └───────────┘                    └→ closed
namespace acc::rendezvous {

enum class MembershipPhase {
  gathering,
  assigning,
  running,
  stopping,
  backing_off,
  closed,
  stepped_down
};

struct MembershipOptions : JobTerms {
  std::optional<JobPolicy> policy;  ///< empty: taken from the first agent that joins
  Timings timings;
  std::uint64_t seed = 0;  ///< for the jitter
  /// Restarted on the seed node. It forms no round until leases granted by the previous coordinator
  /// have expired and a successor could have announced itself.
  bool is_restarted_seed = false;
  /// etcd elected this coordinator and limits its term (lead_until): no votes, no quorum, and each
  /// round is committed before it starts.
  bool external_leader = false;
  /// Nothing starts a node's agent again (acc-launch --hosts): one that left, or that closed its
  /// connection and doesn't return soon, isn't waited for.
  bool starts_no_node_again = false;
  Term term{1, 0};
};

// ---- actions ----
struct SendTo {
  PeerId peer;
  Frame frame;
};
/// One frame for several peers; encoded once.
struct SendAll {
  std::vector<PeerId> peers;
  Frame frame;
};
/// Closes the connection once everything sent before has left.
struct ClosePeer {
  PeerId peer;
};
/// Discards the store of the last round and opens a new one for this epoch.
struct ResetStore {
  Epoch epoch;
  bool is_inherited = false;  ///< it began under another coordinator, and has contents
};
/// external_leader: store this record for a successor, then call committed(). No worker starts
/// before that.
struct CommitRound {
  RoundRecord record;
};
/// One line for the user on the coordinator's node.
struct TellHere {
  std::string text;
  bool is_warning = false;
};
/// Another coordinator may exist: all peers are closed, and this membership must not be used any
/// more.
struct StepDown {
  std::string why;
};
/// The job is over, and every agent has been sent the result.
struct JobOver {
  Close close;
};
using MembershipAction =
    std::variant<SendTo, SendAll, ClosePeer, ResetStore, CommitRound, TellHere, StepDown, JobOver>;
using MembershipActions = std::vector<MembershipAction>;

class Membership {
 public:
  /// A coordinator that starts without history, or waits for votes of a job in progress.
  Membership(MembershipOptions options, Instant now);
  /// An elected coordinator; appends its first actions to `actions`.
  Membership(MembershipOptions options, const ElectionResult& result, Instant now,
             MembershipActions& actions);

  // ---- events ----
  /// The first frame of a connection. `address`: the peer's, as reported by the socket.
  MembershipActions joined(PeerId peer, const Join& join, const std::string& address, Instant now);
  /// Any later frame except requests to the key-value store.
  MembershipActions said(PeerId peer, const Frame& frame, Instant now);
  /// The connection is lost.
  MembershipActions left(PeerId peer, const LinkLoss& loss, Instant now);
  /// An elected coordinator runs elsewhere.
  MembershipActions moved(const HostPort& to, Instant now);
  /// A worker of that peer asks, with KvRequest::Op::current, whether its round may still write.
  /// The KvReply follows as soon as it is proved that no other coordinator exists.
  MembershipActions asked_current(PeerId peer, Round round, std::uint64_t id, Instant now);
  /// Our clock may have stopped (common/clocks.hpp): anything received before `now` proves nothing.
  MembershipActions clock_doubted(Instant now);
  /// Due at next_deadline(); harmless at any other time.
  MembershipActions tick(Instant now);
  [[nodiscard]] Instant next_deadline() const;

  // ---- from etcd, if external_leader ----
  /// Before each event: until when no other node can be coordinator, and when that was requested.
  void lead_until(Instant end, Instant asked = Instant::min()) { authority_->extended(end, asked); }
  /// The last round that the previous coordinator committed; before all other events.
  MembershipActions recover(const RoundRecord& last, Instant now);
  MembershipActions committed(const Epoch& epoch, Instant now);
  void note_etcd_trouble(std::string text) { given_up_.note_trouble(std::move(text)); }

  // ---- observers ----
  [[nodiscard]] MembershipPhase phase() const { return phase_; }
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  /// A committed round is known: this coordinator continues an existing job.
  [[nodiscard]] bool has_round() const { return has_round_; }
  /// Workers of another coordinator, of which it has heard, may live on under their leases.
  [[nodiscard]] bool in_takeover_delay(Instant now) const;
  [[nodiscard]] const RestartLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::size_t connected() const { return nodes_.connected().size(); }
  /// Elected recently: members of the round may still join.
  [[nodiscard]] bool is_recovering(Instant now) const {
    return recovering_until_ && now < *recovering_until_;
  }
  [[nodiscard]] const PlaceTable& places() const { return places_; }
  /// By which its member is connected now; nothing: it isn't.
  [[nodiscard]] std::optional<PeerId> peer_of(const Place& place) const {
    return place.node == kNoNode ? std::nullopt : nodes_[place.node].peer;
  }
  /// True if the other nodes can do without this coordinator, whose own node has left: a round runs
  /// whose members can elect a successor, nobody is left, or the job is over.
  [[nodiscard]] bool is_dispensable() const;
  /// True if this peer may use the store of the running round.
  [[nodiscard]] bool is_member(PeerId peer) const;

 private:
  [[nodiscard]] Instant next_event() const;

  // frames
  void receive(PeerId peer, const Frame& frame, Instant now, MembershipActions& out);
  void defer(PeerId peer, const Frame& frame, Instant now, MembershipActions& out);
  void take_deferred(Instant now, MembershipActions& out);
  void note_heard(NodeIndex index, Instant now);

  // joining: each guard returns whether it has answered
  struct Arrival {
    PeerId peer;
    const Join& join;
    const std::string& address;
    Instant now;
  };
  bool reject_stranger(const Arrival& a, MembershipActions& out);
  bool repeat_close(const Arrival& a, MembershipActions& out);
  bool reject_as_deposed(const Arrival& a, MembershipActions& out);
  bool count_as_vote(const Arrival& a, MembershipActions& out);
  bool yield_to_newer(const Arrival& a, MembershipActions& out);
  bool reject_duplicate(const Arrival& a, MembershipActions& out);
  void admit(const Arrival& a, MembershipActions& out);
  bool return_to_place(NodeIndex index, Instant now, MembershipActions& out);
  void stop_stale(NodeIndex index, MembershipActions& out);
  [[nodiscard]] std::string stale_words(const Join& join) const;
  void refuse(PeerId peer, Refused refused, MembershipActions& out, bool is_told = true);
  NodeIndex enter(const Arrival& a);
  void forget(NodeIndex index);
  void welcome(NodeIndex index, Instant now, MembershipActions& out);
  void tell_difference(NodeIndex index, MembershipActions& out);
  void name_place(const Join& join);
  void take_place(NodeIndex index, std::size_t rank, Instant now);
  void reattach(NodeIndex index, NodeRank rank, Instant now, MembershipActions& out);
  void take_over(const ElectionResult& result, Instant now, MembershipActions& out);
  void recover_places(const ElectionResult& result, Instant now);
  void recover_nodes(const ElectionResult& result, Instant now, MembershipActions& out);

  // gathering
  [[nodiscard]] std::vector<NodeIndex> assignable() const;
  [[nodiscard]] bool is_missing(const Place& place) const;
  void consider_round(Instant now, MembershipActions& out);
  [[nodiscard]] std::optional<Instant> last_call_end(std::size_t present) const;
  void begin_gathering(Instant now);
  [[nodiscard]] std::string why_too_few(Instant now) const;
  [[nodiscard]] bool keeps_quorum(const std::vector<NodeIndex>& order) const;
  [[nodiscard]] std::vector<Candidate> candidates(const std::vector<NodeIndex>& present) const;
  void assign(const std::vector<NodeIndex>& order, Instant now, MembershipActions& out);
  void send_assignment(std::size_t place, Instant now, MembershipActions& out);
  void consider_waiting(Instant now, MembershipActions& out);
  void tell_spares(MembershipActions& out, const std::string& words = {});
  [[nodiscard]] std::vector<Standby> choose_standbys() const;
  void tell_waiting(Instant now, MembershipActions& out);

  // a round
  void on(NodeIndex index, const Ready& ready, Instant now, MembershipActions& out);
  void on(NodeIndex index, const Heartbeat& heartbeat, Instant now, MembershipActions& out);
  void on(NodeIndex index, const WorkerFailed& failed, Instant now, MembershipActions& out);
  void on(NodeIndex index, const Completed& completed, Instant now, MembershipActions& out);
  void on(NodeIndex index, const Stopped& stopped, Instant now, MembershipActions& out);
  void on(NodeIndex index, const SignalRequest& request, Instant now, MembershipActions& out);
  void on(NodeIndex index, const Leave& leave, Instant now, MembershipActions& out);
  void on(NodeIndex index, const TableRequest& request, Instant now, MembershipActions& out);
  void on(NodeIndex index, const RestartRequest& request, Instant now, MembershipActions& out);
  void on(NodeIndex index, const KvRestore& part, Instant now, MembershipActions& out);
  template <class Other>
  void on(NodeIndex, const Other&, Instant, MembershipActions&) {}  // not meant for a coordinator

  /// Empty: what a RestartRequest asks for is done, now or with the next round.
  [[nodiscard]] std::string why_no_restart() const;

  void start_round(Instant now, MembershipActions& out);
  void send_start(std::size_t place, Instant now, MembershipActions& out);
  void finish_by_signal(Instant now, MembershipActions& out);
  void stop_round(Stop::Why why, std::string reason, Instant now, MembershipActions& out);
  void add_losses(Stop& stop) const;
  void mark_lost(std::size_t rank, std::string why, Instant now, MembershipActions& out);
  void disconnect_silent(Instant now, MembershipActions& out);
  void watch_places(Instant now, MembershipActions& out);
  void give_up_stopping(Instant now, MembershipActions& out);
  [[nodiscard]] bool everyone_is_dead(Instant now) const;
  [[nodiscard]] bool is_dead(const Place& place, Instant now) const;
  void after_stop(Instant now, MembershipActions& out);
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] RoundResult result_of_round();
  void restart_after(Millis delay, Instant now, MembershipActions& out);
  [[nodiscard]] Failure root_cause() const;
  void note_first(Failure failure);
  void close(const End& end, std::string reason, Instant now, MembershipActions& out);

  // permission to write: membership_current.cpp
  [[nodiscard]] bool may_write(PeerId peer, Round round) const;
  void probe(Instant now, MembershipActions& out);
  void answer_inquiries(Instant now, MembershipActions& out);
  void end_inquiries(MembershipActions& out);
  void reply(const Inquiries::Inquiry& inquiry, std::optional<Millis> granted,
             MembershipActions& out) const;

  // etcd
  void commit_round(Instant now, MembershipActions& out);
  void start_anew(Instant now, MembershipActions& out);
  void drop_unbegun(Place& place, Instant now, MembershipActions& out);
  [[nodiscard]] bool knows_the_job(const Join& join) const;
  [[nodiscard]] std::string doubt() const;

  // authority
  void note_echo(std::size_t rank, std::uint64_t echo, Instant now);
  void check_authority(Instant now, MembershipActions& out);
  void step_down(std::string why, MembershipActions& out);

  /// Places are assigned or have workers.
  [[nodiscard]] bool is_in_round() const {
    return phase_ == MembershipPhase::assigning || phase_ == MembershipPhase::running ||
           phase_ == MembershipPhase::stopping;
  }
  [[nodiscard]] std::uint64_t stamp(Instant now) const;
  void send(NodeIndex index, Message message, MembershipActions& out) const;
  void send_all(Message message, MembershipActions& out) const;
  double jitter_sample();

  MembershipOptions options_;
  MembershipPhase phase_ = MembershipPhase::gathering;
  Instant phase_since_;
  Instant phase_until_{};  ///< backing_off: its end; stopping: agents that don't answer by then are
                           ///< disconnected
  Epoch epoch_;
  bool has_round_ = false;  ///< epoch_.round has been assigned
  /// Lower bound for the next round number: an agent may have seen rounds of a coordinator unknown
  /// to this one.
  std::optional<Round> newest_heard_;
  bool heard_of_another_ = false;  ///< an agent joined that had another coordinator before
  /// The round comes from etcd, and no agent that joined knows it: it may belong to an earlier run.
  bool recovered_unconfirmed_ = false;
  std::optional<Instant> recovering_until_;  ///< after an election: its members may still join
  GivenUpAssignments given_up_;
  std::unique_ptr<Authority> authority_;
  Inquiries inquiries_;
  struct Deferred {
    PeerId peer;
    Frame frame;
  };
  std::vector<Deferred> deferred_;  ///< received while the lease of etcd was in doubt

  NodeTable nodes_;
  VoteCounter votes_;
  PlaceTable places_;
  std::vector<Standby> standbys_;
  std::uint32_t ready_ = 0;
  std::uint32_t completed_ = 0;
  HostPort master_;
  Instant round_started_{};

  Instant began_;  ///< stamps count from here
  Instant ticked_;
  Instant next_notice_{};
  std::uint64_t random_;

  RestartLedger ledger_;
  Departures departures_;
  bool restart_is_due_ = false;
  bool restart_is_asked_ = false;  ///< while a round stops: another one follows, whatever it was
  std::string restart_reason_;
  Stop::Why stop_why_ = Stop::Why::restart;  ///< of the round that stops, if no signal stops it
  RoundFailures failures_;
  struct EndSignal {
    std::int32_t signo = 0;  ///< 0: none
    std::string by;          ///< the node that received it
    bool while_well = false;
  } end_signal_;
  std::optional<Close> over_;
};

[[nodiscard]] std::string_view to_string(MembershipPhase phase);

}  // namespace acc::rendezvous
