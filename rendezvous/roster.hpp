#pragma once

#include "rendezvous/ballot.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"
#include "rendezvous/round_record.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

/// The coordinator's bookkeeping as a pure machine: who is in, in which round, in which rank; what
/// was spent; who may be waited for. No socket, no clock: the time comes with the event.
///
///   gathering → assigning → running → stopping → gathering …
///       ↑           │                    │  └→ backing_off → gathering
///       └───────────┘                    └→ closed
namespace acc::rendezvous {

enum class RosterPhase {
  gathering,
  assigning,
  running,
  stopping,
  backing_off,
  closed,
  stepped_down
};

struct Timings {
  Millis dead{5'000};    ///< silence after which a peer counts as lost
  Millis lease{10'000};  ///< for which workers live without a word from the coordinator
  [[nodiscard]] Millis beat() const;
  /// Within it a lease must be confirmed after a doubt about the clocks.
  [[nodiscard]] Millis confirmation() const;
};

struct RosterOptions {
  std::string job;
  std::string name;   ///< the coordinator's node, for words
  std::string where;  ///< "10.0.0.1:29501", for words
  /// 0: as the first agent says (a coordinator that stands alone).
  std::uint32_t nodes_min = 0;
  std::uint32_t nodes_max = 0;
  std::optional<JobPolicy> policy;  ///< empty: as the first agent says
  std::vector<Fact> facts;          ///< of the own node; empty: as the first agent says
  Timings timings;
  std::uint64_t seed = 0;  ///< of the jitter
  /// This process was started again on a node where the job's first coordinator had been: no round
  /// of its own before the old leases are over and a successor has had time to tell of himself.
  bool is_second = false;
  /// etcd made this coordinator, and says how long it is one (lead_until): no votes, no majority,
  /// and each round is committed before it starts.
  bool has_witness = false;
  Term term{1, 0};
};

// ---- actions ----
struct SendTo {
  PeerId peer;
  Frame frame;
};
/// The same frame to all of them: encoded once.
struct SendAll {
  std::vector<PeerId> peers;
  Frame frame;
};
/// After what was sent before has left.
struct ClosePeer {
  PeerId peer;
};
/// The store of the last round is void; a new one for this epoch.
struct ResetStore {
  Epoch epoch;
};
/// has_witness: keep this for a successor, then answer with committed(). No worker starts before.
struct CommitRound {
  RoundRecord record;
};
/// One line for the user of the coordinator's node.
struct TellHere {
  std::string text;
  bool is_warning = false;
};
/// Another coordinator may be in office: all peers are closed, this roster is of no use any more.
struct StepDown {
  std::string why;
};
/// The job is over and everybody was told.
struct JobOver {
  Close close;
};
using RosterAction =
    std::variant<SendTo, SendAll, ClosePeer, ResetStore, CommitRound, TellHere, StepDown, JobOver>;
using RosterActions = std::vector<RosterAction>;

class Roster {
 public:
  /// A coordinator that starts from nothing, or waits for votes of a job in progress.
  Roster(RosterOptions options, Instant now);
  /// One that was elected; fills `actions` with what follows at once.
  Roster(RosterOptions options, const Win& win, Instant now, RosterActions& actions);

  // ---- events ----
  /// The first frame of a connection. `address`: the peer's, as the socket says.
  RosterActions joined(PeerId peer, const Join& join, const std::string& address, Instant now);
  /// Any later frame but those of the key-value store.
  RosterActions said(PeerId peer, const Frame& frame, Instant now);
  /// The connection is gone; `why` in words ("connection reset").
  RosterActions left(PeerId peer, const std::string& why, Instant now);
  /// An elected coordinator sits elsewhere.
  RosterActions moved(const HostPort& to, Instant now);
  /// A worker of that peer asks, with KvRequest::Op::current, whether its round may still write.
  /// Answered by a KvReply, as soon as it is proved that nobody else is coordinator.
  RosterActions asked_current(PeerId peer, Round round, std::uint64_t id, Instant now);
  /// Our clock may have stood still (common/clocks.hpp): what was heard before proves nothing now.
  RosterActions clock_doubted(Instant now);
  /// When next_deadline() has come; also harmless at any other time.
  RosterActions tick(Instant now);
  [[nodiscard]] Instant next_deadline() const;

  // ---- of etcd, if has_witness ----
  /// Before each event: until when nobody else can be coordinator, and when we asked for that.
  void lead_until(Instant end, Instant asked = Instant::min()) {
    leads_until_ = end;
    witnessed_at_ = asked;
  }
  /// What the coordinator before this one committed; before all other events.
  RosterActions inherit(const RoundRecord& last, Instant now);
  RosterActions committed(const Epoch& epoch, Instant now);

  // ---- to look at ----
  [[nodiscard]] RosterPhase phase() const { return phase_; }
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] bool was_elected() const { return elected_; }
  /// A committed round is known: this coordinator is not a fresh one.
  [[nodiscard]] bool has_round() const { return has_round_; }
  [[nodiscard]] const RestartLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::size_t connected() const { return by_peer_.size(); }
  /// Elected a moment ago: members of the round may still come.
  [[nodiscard]] bool is_recovering(Instant now) const {
    return recovering_until_ && now < *recovering_until_;
  }
  /// Is each member of the round here, and among those peers?
  template <class Among>
  [[nodiscard]] bool are_members_among(Among among) const {
    return std::ranges::all_of(places_, [&](const Place& place) {
      const Node* const node = place.node == kNobody ? nullptr : &*nodes_[place.node];
      return node != nullptr && node->peer && among(*node->peer);
    });
  }
  /// May this peer use the store of the running round?
  [[nodiscard]] bool is_member(PeerId peer) const;

 private:
  using NodeIndex = std::size_t;
  static constexpr NodeIndex kNobody = static_cast<NodeIndex>(-1);

  /// An agent that came, whether it has a place or not.
  struct Node {
    Join join;  ///< as it came last
    std::string address;
    std::optional<PeerId> peer;
    Instant heard{};           ///< its latest frame, by our clock
    bool has_workers = false;  ///< of whatever round; not to be given a place before Stopped
    bool told_spare = false;
    std::uint64_t arrival = 0;
  };
  /// A place in the last round that was assigned.
  struct Place {
    NodeIndex node = kNobody;  ///< kNobody: after an election, not heard of yet
    std::string name;          ///< for words, also when the node is forgotten
    std::uint64_t incarnation = 0;
    Rank first{0};
    std::uint32_t slots = 0;
    Holding holding = Holding::assigned;
    std::uint32_t ready_beat = 0;  ///< of its Ready; 0: none yet
    bool gone = false;             ///< lost, or left: won't take part in this round any more
    std::string why_gone;
    Instant heard{};
    Instant contact{};  ///< our clock, when the newest stamp that it echoed was written
    /// No worker of it lives after this moment, whatever happens to it.
    Instant lease_end{};
    std::optional<Instant> link_lost;
  };

  // joining
  [[nodiscard]] std::string stale_words(const Join& join) const;
  std::optional<Refused> objection(const Join& join) const;
  std::optional<Refused> compare_facts(const Join& join) const;
  std::optional<Refused> duplicate(const Join& join, const std::string& address, Instant now) const;
  void refuse(PeerId peer, Refused refused, RosterActions& out);
  NodeIndex enter(PeerId peer, const Join& join, const std::string& address, Instant now);
  void forget(NodeIndex index);
  void welcome(NodeIndex index, Instant now, RosterActions& out);
  void name_place(const Join& join);
  void take_place(NodeIndex index, std::size_t rank, Instant now);
  void reattach(NodeIndex index, NodeRank rank, Instant now, RosterActions& out);
  void adopt(const Win& win, Instant now, RosterActions& out);
  bool collect_vote(PeerId peer, const Join& join, const std::string& address, Instant now,
                    RosterActions& out);

  // gathering
  [[nodiscard]] bool must_hold_off(Instant now) const;
  [[nodiscard]] std::vector<NodeIndex> assignable() const;
  [[nodiscard]] bool is_missing(const Place& place) const;
  void consider_round(Instant now, RosterActions& out);
  [[nodiscard]] std::optional<Instant> last_call_end(std::size_t present) const;
  void begin_gathering(Instant now);
  [[nodiscard]] bool keeps_quorum(const std::vector<NodeIndex>& order) const;
  std::vector<NodeIndex> choose(std::vector<NodeIndex> present) const;
  void assign(const std::vector<NodeIndex>& order, Instant now, RosterActions& out);
  void send_assignment(std::size_t place, Instant now, RosterActions& out);
  void tell_spares(RosterActions& out, const std::string& words = {});
  [[nodiscard]] std::vector<Standby> choose_standbys() const;
  void tell_waiting(Instant now, RosterActions& out);

  // a round
  void on(NodeIndex index, const Ready& ready, Instant now, RosterActions& out);
  void on(NodeIndex index, const Beat& beat, Instant now, RosterActions& out);
  void on(NodeIndex index, const WorkerFailed& failed, Instant now, RosterActions& out);
  void on(NodeIndex index, const Completed& completed, Instant now, RosterActions& out);
  void on(NodeIndex index, const Stopped& stopped, Instant now, RosterActions& out);
  void on(NodeIndex index, const Wish& wish, Instant now, RosterActions& out);
  void on(NodeIndex index, const Leave& leave, Instant now, RosterActions& out);
  void on(NodeIndex index, const TableRequest& request, Instant now, RosterActions& out);
  template <class Other>
  void on(NodeIndex, const Other&, Instant, RosterActions&) {}  // not for a coordinator

  void start_round(Instant now, RosterActions& out);
  void send_start(std::size_t place, Instant now, RosterActions& out);
  void finish_by_signal(Instant now, RosterActions& out);
  void stop_round(Stop::Why why, std::string reason, Instant now, RosterActions& out);
  void add_losses(Stop& stop) const;
  void lose(std::size_t place, std::string why, Instant now, RosterActions& out);
  void watch_places(Instant now, RosterActions& out);
  [[nodiscard]] bool everyone_is_dead(Instant now) const;
  [[nodiscard]] bool is_dead(const Place& place, Instant now) const;
  void after_stop(Instant now, RosterActions& out);
  [[nodiscard]] Failure blame() const;
  void note_first(Failure failure);
  void close(Outcome outcome, int exit_code, std::string reason, Instant now, RosterActions& out);

  // who may write: roster_current.cpp
  [[nodiscard]] bool may_write(PeerId peer, Round round) const;
  [[nodiscard]] Instant proved_at();
  void probe(Instant now, RosterActions& out);
  void answer_inquiries(Instant now, RosterActions& out);
  void end_inquiries(RosterActions& out);
  void reply_current(PeerId peer, std::uint64_t id, std::optional<Millis> granted,
                     RosterActions& out) const;

  // etcd
  void commit_round(Instant now, RosterActions& out);
  void start_anew(Instant now, RosterActions& out);
  void drop_unbegun(Place& place, Instant now, RosterActions& out);
  [[nodiscard]] bool knows_the_job(const Join& join) const;
  [[nodiscard]] std::string doubt() const;

  // authority
  [[nodiscard]] Instant nth_contact(std::uint32_t n) const;
  [[nodiscard]] Instant quorum_contact() const;
  void confirm(Instant now);
  [[nodiscard]] bool has_authority(Instant now) const;
  [[nodiscard]] Millis grant(Instant now);
  void note_contact(Place& place, std::uint64_t echo, Instant now);
  void check_authority(Instant now, RosterActions& out);
  void step_down(std::string why, RosterActions& out);

  [[nodiscard]] std::uint64_t stamp(Instant now) const;
  [[nodiscard]] std::optional<std::size_t> place_of(NodeIndex index) const;
  void send(const Node& node, Message message, RosterActions& out) const;
  void send_all(Message message, RosterActions& out) const;
  [[nodiscard]] std::string name_of_place(std::size_t place) const;
  [[nodiscard]] Millis lease_slack() const;
  double roll();

  RosterOptions options_;
  RosterPhase phase_ = RosterPhase::gathering;
  Epoch epoch_;
  bool has_round_ = false;  ///< epoch_.round is one that was assigned
  /// The next one is above any that somebody here has heard of: he may have outlived a coordinator
  /// that we know nothing of.
  std::optional<Round> newest_heard_;
  bool heard_of_another_ = false;  ///< an agent came that has had a coordinator before us
  bool elected_ = false;
  RestartLedger ledger_;
  std::uint64_t random_;

  std::vector<std::optional<Node>> nodes_;
  std::vector<NodeIndex> free_;
  std::unordered_map<std::string, NodeIndex> by_name_;
  std::map<PeerId, NodeIndex> by_peer_;
  std::unordered_map<std::uint32_t, NodeIndex> by_wanted_;
  std::uint64_t arrivals_ = 0;
  Ballot ballot_;

  std::vector<Place> places_;  ///< by node rank
  std::unordered_map<NodeIndex, std::size_t> place_by_node_;
  std::unordered_map<std::string, std::size_t> place_by_name_;
  std::vector<Standby> standbys_;
  std::uint32_t ready_ = 0;
  std::uint32_t completed_ = 0;
  HostPort master_;

  Instant began_;
  Instant phase_since_;
  Instant last_arrival_{};
  Instant ticked_;
  Instant epoch_zero_;  ///< stamps count from here
  Instant stop_deadline_{};
  Instant backoff_end_{};
  Instant next_notice_{};
  Instant round_started_{};
  std::optional<Instant> recovering_until_;  ///< after an election: who is missing may still come
  Instant won_at_{};
  /// Elected, and a majority has answered: only then nobody else can be in office.
  bool is_confirmed_ = true;
  Instant leads_until_ = Instant::min();
  Instant witnessed_at_ = Instant::min();
  Instant committing_since_{};
  /// The round comes from etcd, and nobody has come who knows of it: it may be an earlier run's.
  bool is_doubtful_ = false;
  /// A worker's question that waits for its proof.
  struct Inquiry {
    PeerId peer;
    std::uint64_t id = 0;
    Instant asked;
  };
  std::vector<Inquiry> inquiries_;
  std::optional<Instant> probed_at_;   ///< the newest Probe
  std::optional<Instant> doubted_at_;  ///< nothing heard before counts
  mutable std::optional<Instant> quorum_cache_;
  Instant quorum_computed_{};

  bool restart_is_due_ = false;
  std::string restart_reason_;
  std::optional<Failure> failure_;  ///< of this round
  Instant failed_at_{};
  std::optional<Failure> first_failure_;  ///< of the job's latest failed round, for Close
  Instant first_failed_at_{};
  bool progress_ = false;
  bool membership_change_ = false;
  std::int32_t stop_signal_ = 0;
  std::string stopped_by_;
  std::optional<Close> over_;
};

[[nodiscard]] std::string_view to_string(RosterPhase phase);
/// a < b as people sort hosts: node2 before node10.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

}  // namespace acc::rendezvous
