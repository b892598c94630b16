#pragma once

#include "rendezvous/ballot.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"
#include "rendezvous/roster.hpp"

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// One agent's side of the rendezvous as a pure machine: whom to call, what it holds, how long its
/// lease lasts, whom to vote for. No socket, no clock, no process.
///
///   seeking → joining → member → ended
///      ↑         │         │
///      └─────────┴─────────┘   the connection is lost: workers go on until the lease is over
namespace acc::rendezvous {

enum class LinkPhase { seeking, dialing, joining, member, ended };

struct MemberOptions {
  Join self;  ///< what every Join says; holding, epoch and vote are filled in
  /// For a node that was given no name: the one it takes if another machine has its first one.
  std::string other_name;
  HostPort home;       ///< where the job's first coordinator is
  bool hosts = false;  ///< the coordinator starts in this process
  Timings timings;     ///< until a Welcome tells other ones
  Millis join_timeout{600'000};
  bool has_witness = false;  ///< etcd says who is coordinator: no votes are counted
  std::uint64_t seed = 0;
};

/// Where this node stands in a round.
struct RoundPlace {
  Epoch epoch;
  NodeRank node_rank{0};
  std::uint32_t nodes = 1;
  Rank first_rank{0};
  WorldSize world_size{1};
  HostPort master;
  RestartLedger ledger;
  std::string reason;
};

// ---- actions ----
/// Exactly one answer follows: link_up or dial_failed.
struct DialTo {
  HostPort to;
  bool here = false;  ///< the coordinator of this process
  Millis limit{3'000};
};
struct Hang {};  ///< end the connection or the dialling; no answer
struct Send {
  Frame frame;
};
struct OrderPort {
};  ///< node rank 0: reserve a port for the workers' store, answer with port_reserved
struct OrderRound {
  RoundPlace place;
};
struct OrderStop {
  Stop stop;
};
struct OrderSignal {
  Signal signal;
};
struct OrderClose {
  Close close;
};
/// The guardian kills the workers at that moment, unless it is moved on.
struct SetLease {
  Instant end;
};
struct ClearLease {};
/// The lease is over while there are workers.
struct OrderKill {
  std::string why;
};
/// The job is lost for this node; its workers are gone.
struct GiveUp {
  enum class Why { unreachable, refused, no_majority, not_authentic };
  Why why;
  std::string text;
};
struct Tell {
  std::string text;
  bool is_warning = false;
};
struct RefuseVote {
  PeerId peer;
  Refused refused;
};
/// A majority voted for this node: make a Roster of it, with the voters' connections.
struct TakeOver {
  Win win;
};
using MemberAction =
    std::variant<DialTo, Hang, Send, OrderPort, OrderRound, OrderStop, OrderSignal, OrderClose,
                 SetLease, ClearLease, OrderKill, GiveUp, Tell, RefuseVote, TakeOver>;
using MemberActions = std::vector<MemberAction>;

/// Why a dial failed, so that the words can name the cure.
struct DialFailure {
  bool not_authentic = false;  ///< other secret; trying again won't help
  bool refused = false;        ///< the host answers and nobody listens: it is no use to wait
  std::string what;
};

class Member {
 public:
  Member(MemberOptions options, Instant now);

  // ---- of the network ----
  MemberActions begin(Instant now);
  /// `local_address`: ours on this connection, for others to reach this node.
  MemberActions link_up(const std::string& local_address, Instant now);
  MemberActions dial_failed(const DialFailure& failure, Instant now);
  MemberActions link_lost(const std::string& why, Instant now, bool not_authentic = false);
  MemberActions received(const Frame& frame, Instant now);
  MemberActions tick(Instant now);
  [[nodiscard]] Instant next_deadline() const;
  /// Our clock may have stood still for a while (common/clocks.hpp): a lease counts on only if the
  /// coordinator confirms it soon.
  MemberActions clock_doubted(Instant now);
  /// The coordinator of this process is no more.
  MemberActions stepped_down(const std::string& why, Instant now);
  /// etcd: the coordinator sits there now.
  MemberActions coordinator_is_at(const HostPort& to, Instant now);
  /// etcd: it is in this process now; others reach it there.
  MemberActions coordinator_is_here(const HostPort& at, Instant now);
  /// etcd: there is nothing to come back to.
  MemberActions job_is_gone(const std::string& why, Instant now);

  // ---- of other agents that lost their coordinator ----
  MemberActions vote_came(PeerId peer, const Join& join, const std::string& address, Instant now);
  MemberActions vote_gone(PeerId peer, Instant now);

  // ---- of the own supervisor ----
  MemberActions port_reserved(std::uint16_t port, Instant now);
  MemberActions worker_failed(const Failure& failure, Instant now);
  MemberActions workers_completed(Instant now);
  MemberActions workers_stopped(bool progress, Instant now);
  MemberActions signal_came(int signo, std::uint32_t interrupts, Instant now);
  MemberActions leaves(const std::string& why, Instant now);
  void set_alive(std::uint32_t workers) { alive_ = workers; }
  /// Where this agent takes votes; before the Join that tells it.
  void set_listener(std::uint16_t port) { options_.self.listens = port; }
  /// How others reach this node, where no connection tells it: the coordinator is in this process.
  void set_address_here(const std::string& address) { address_ = address; }
  /// Why no coordinator is found, for words.
  void set_last_failure(const std::string& why) { last_failure_ = why; }
  /// The first coordinator turned out to be in this process; before begin().
  void set_hosts() { options_.hosts = coordinator_here_ = true; }

  // ---- to look at ----
  [[nodiscard]] LinkPhase phase() const { return phase_; }
  [[nodiscard]] bool is_connected() const { return phase_ == LinkPhase::member; }
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] Term term() const { return term_; }
  [[nodiscard]] Holding holding() const { return holding_; }
  [[nodiscard]] std::optional<Instant> lease_end() const { return lease_end_; }
  /// May workers be started at this moment?
  [[nodiscard]] bool may_run(Instant now) const { return lease_end_ && now < *lease_end_; }
  [[nodiscard]] HostPort coordinator() const { return coordinator_; }
  /// In the round of epoch(); nodes: how many it has.
  [[nodiscard]] const RoundPlace& place() const { return place_; }
  [[nodiscard]] const MemberOptions& options() const { return options_; }
  /// As the last coordinator told them: leases that it gave may last so long.
  [[nodiscard]] const Timings& timings() const { return timings_; }

 private:
  // seeking
  void seek(Instant now, MemberActions& out);
  void lose_link(const std::string& why, Instant now, MemberActions& out);
  [[nodiscard]] std::size_t slot(Instant now) const;
  [[nodiscard]] std::size_t first_called(Instant now) const;
  [[nodiscard]] std::size_t preferred_standby(Instant now) const;
  void pass_over(const HostPort& unreachable, Instant now);
  void begin_search(Instant now);
  void count_dial();
  [[nodiscard]] std::vector<HostPort> targets(Instant now) const;
  [[nodiscard]] Millis slot_length() const;
  [[nodiscard]] Instant slot_end(Instant now) const;
  [[nodiscard]] Millis backoff();
  void dial_next(Instant now, MemberActions& out);
  [[nodiscard]] Millis dial_limit(int share) const;
  [[nodiscard]] std::optional<std::size_t> own_standby() const;
  void count_votes(Instant now, MemberActions& out);
  void send_voters_on(Instant now, MemberActions& out);
  void send_voters_to(const Refused& elsewhere, MemberActions& out);
  [[nodiscard]] Refused has_coordinator() const;
  [[nodiscard]] bool have_crossed(const Join& theirs) const;
  void give_up(GiveUp::Why why, std::string text, MemberActions& out);
  void consider_giving_up(Instant now, MemberActions& out);
  void forget_round(Instant now, MemberActions& out);
  void tell_seeking(Instant now, MemberActions& out);
  void seek_again(Millis delay, Instant now, MemberActions& out);
  [[nodiscard]] bool can_elect() const;
  [[nodiscard]] Join make_join() const;
  [[nodiscard]] std::string sought() const;

  // as a member
  void on(const Frame& frame, const Welcome& welcome, Instant now, MemberActions& out);
  void on(const Frame& frame, const Refused& refused, Instant now, MemberActions& out);
  void on(const Frame& frame, const Assigned& assigned, Instant now, MemberActions& out);
  void on(const Frame& frame, const Start& start, Instant now, MemberActions& out);
  void on(const Frame& frame, const BeatAck& ack, Instant now, MemberActions& out);
  void on(const Frame& frame, const Stop& stop, Instant now, MemberActions& out);
  void on(const Frame& frame, const Signal& signal, Instant now, MemberActions& out);
  void on(const Frame& frame, const Close& close, Instant now, MemberActions& out);
  void on(const Frame& frame, const Notice& notice, Instant now, MemberActions& out);
  void on(const Frame& frame, const Probe& probe, Instant now, MemberActions& out);
  template <class Other>
  void on(const Frame&, const Other&, Instant, MemberActions&) {}  // not for an agent
  [[nodiscard]] bool is_stale(const Frame& frame) const;
  void beat(Instant now, MemberActions& out);
  std::uint32_t next_beat(Instant now);
  void note_round_trip(Millis took);
  void send(Message message, MemberActions& out) const;
  void send_ready(std::uint16_t port, Instant now, MemberActions& out);
  void renew_lease(std::uint32_t beat, Millis granted, MemberActions& out);
  [[nodiscard]] bool has_workers() const { return holding_ == Holding::running; }
  void check_lease(Instant now, MemberActions& out);

  MemberOptions options_;
  LinkPhase phase_ = LinkPhase::seeking;
  Timings timings_;
  HostPort coordinator_;   ///< the last one that welcomed us, else home
  bool coordinator_here_;  ///< it is in this process
  std::string address_;

  // what is held
  Term term_;    ///< of the last coordinator that welcomed us; never an older one
  Epoch epoch_;  ///< of the assignment that is held
  Holding holding_ = Holding::nothing;
  Holding joined_with_ = Holding::nothing;  ///< what the last Join said
  RoundPlace place_;
  std::uint16_t port_ = 0;  ///< reserved for the workers' store of this round
  std::vector<Standby> standbys_;
  std::uint32_t alive_ = 0;
  std::optional<Failure> unsent_failure_;
  std::optional<GiveUp> give_up_when_empty_;

  // lease
  std::optional<Instant> lease_end_;
  bool is_lease_doubted_ = false;  ///< it ends early, for want of a confirmation
  static constexpr std::size_t kBeatsKept = 64;
  std::array<std::pair<std::uint32_t, Instant>, kBeatsKept> beats_sent_{};
  std::uint32_t beat_ = 0;
  std::uint64_t echo_ = 0;
  Millis round_trip_{0};  ///< of a beat and its answer

  // seeking and voting
  Ballot ballot_;
  Instant began_;
  Instant lost_at_;  ///< since when there is no coordinator
  Instant heard_{};  ///< of the coordinator
  Instant next_beat_{};
  Instant next_dial_{};
  Instant link_deadline_{};  ///< of dialling, or of the wait for Welcome
  Instant ticked_;
  Instant next_tell_{};
  std::size_t dials_ = 0;  ///< since the loss
  HostPort dialed_;
  HostPort first_target_;             ///< of the list that is being tried
  std::size_t next_target_ = 0;       ///< in that list
  std::bitset<kMaxStandbys> passed_;  ///< standbys that could not be reached in slot passed_in_
  std::size_t passed_in_ = 0;
  Instant stands_until_{};       ///< this node waits for votes, whose slot it is or not
  Instant gives_vote_at_{};      ///< joining, if it isn't refused before
  std::uint32_t redirects_ = 0;  ///< one after the other
  std::optional<HostPort> redirect_;
  std::string last_failure_;
  std::optional<std::pair<int, std::uint32_t>> unsent_wish_;
  std::uint64_t random_;
};

[[nodiscard]] std::string_view to_string(LinkPhase phase);
/// As the user would write it: "10.0.0.1:29501", "[fd77::1]:29501".
[[nodiscard]] std::string address_text(const HostPort& place);

}  // namespace acc::rendezvous
