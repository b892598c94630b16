#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "rendezvous/etcd_json.hpp"
#include "rendezvous/etcd_records.hpp"
#include "rendezvous/timings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// Election of a job's coordinator by etcd, from one agent's point of view: a pure state machine.
/// No socket and no clock: it returns requests to etcd, and receives each answer with the time of
/// its arrival.
///
///   looking → claiming → leading → looking …
///
/// The holder of the key PREFIX/JOB/leader leads; the key ends with its lease. The term grows with
/// each leader (PREFIX/JOB/term), and the commit of a round (PREFIX/JOB/table) is refused once
/// another node leads. A leader's time counts from the sending of its last renewal, so it has
/// stepped down before etcd frees the key.
namespace acc::rendezvous {

struct LeadershipOptions {
  std::string prefix = "/acc";  ///< of all keys
  std::string job;
  NodeId me;
  HostPort at;                    ///< where agents reach the coordinator on this node
  Millis ttl{10'000};             ///< a leader that can't renew for so long steps down
  std::uint32_t lowest_term = 1;  ///< of a leadership won here: above any that this agent has seen
  std::uint32_t nodes = 1;        ///< that may seek a leader at the same time
  std::uint64_t seed = 0;         ///< to spread this node among them
};

/// Of LeadershipOptions: when a leader counts as lost. etcd grants no less than two seconds: a
/// shorter time would make a leader step down earlier, but not let its successor begin earlier.
[[nodiscard]] Millis leadership_ttl(const Timings& timings);

struct GrantLease {
  std::int64_t ttl_s = 0;
};
struct KeepAlive {
  std::int64_t lease = 0;
};
struct RevokeLease {
  std::int64_t lease = 0;
};
using EtcdQuestion = std::variant<EtcdTransaction, GrantLease, KeepAlive, RevokeLease>;
/// Answer to a transaction, or to one of the other requests.
using EtcdAnswer = std::variant<EtcdTransactionReply, EtcdLease>;

// ---- actions ----
/// Answered exactly once, by answered(); within `limit`, unless the process sleeps.
struct AskEtcd {
  std::uint64_t id = 0;
  std::string name;  ///< for messages: "renew the lease of job 'j7'"
  Millis limit{0};
  EtcdQuestion question;
};
/// Another node leads; new to this one.
struct FollowLeader {
  Leader leader;
};
/// This node leads from now on.
struct BecomeLeader {
  std::uint32_t term = 0;
  std::optional<RoundRecord> last;  ///< the newest round that a leader of the job committed
  /// This agent knows a term of the job, and etcd held none: it is removed with the job alone.
  bool is_term_gone = false;
};
/// Whether the job of the node that won is over: its end removes all the keys in etcd, and a node
/// that was part of it, as a member or as a spare, would begin it anew.
[[nodiscard]] bool is_job_gone(const BecomeLeader& won, NodeState state);
/// This node no longer leads: nothing may be granted from now on.
struct StopLeading {
  std::string why;
};
struct RoundCommitted {
  Epoch epoch;
};
/// etcd doesn't answer as expected; the request is repeated. Sent once until it does again.
struct EtcdTrouble {
  std::string text;
};
/// The answer to end(): the key is free, or why it stays until its lease is over.
struct LeadershipEnded {
  std::optional<Error> problem;
};
using LeadershipAction = std::variant<AskEtcd, FollowLeader, BecomeLeader, StopLeading,
                                      RoundCommitted, EtcdTrouble, LeadershipEnded>;
using LeadershipActions = std::vector<LeadershipAction>;

class Leadership {
 public:
  explicit Leadership(LeadershipOptions options);

  // ---- events; times by boot_now() ----
  /// From now on this agent looks for the leader, and becomes it if there is none.
  LeadershipActions begin(Instant now);
  LeadershipActions answered(std::uint64_t id, const Result<EtcdAnswer>& answer, Instant now);
  /// Due at next_deadline(); harmless at any other time.
  LeadershipActions tick(Instant now);
  [[nodiscard]] Instant next_deadline() const;

  /// Writes the record while this node leads, until it is written or replaced by a later one.
  LeadershipActions commit(const RoundRecord& record, Instant now);
  /// Frees the key immediately, so that no successor waits for the lease, and continues looking.
  LeadershipActions resign(Instant now);
  /// As resign(), permanently. @param is_over  the job: all its keys in etcd are removed.
  LeadershipActions end(bool is_over, Instant now);

  /// When the newest lease was requested, and until when it makes this node the leader. Compare
  /// right before each act reserved to a leader: after a pause of the whole process StopLeading may
  /// still be pending. Nothing that a leader grants may outlive it, unless its successor waits.
  struct LeadershipTerm {
    Instant asked;
    Instant until;
  };
  [[nodiscard]] std::optional<LeadershipTerm> leadership_term() const;

 private:
  enum class Step { wait, look, remove_own, grant, claim };
  enum class Renewal { wait, keep_alive, check };
  /// The leadership won by one claim.
  struct Leading {
    std::uint32_t term = 0;
    std::string value;         ///< of the leader key, as written
    std::int64_t created = 0;  ///< revision of the leader key
    std::int64_t lease = 0;
    std::int64_t table_modified = 0;  ///< newest revision of the table known here
    Instant asked;
    Instant until;
    Instant renew_at;
  };
  struct Write {
    Epoch epoch;
    std::string value;
    std::uint64_t id = 0;  ///< of the pending request; 0: none
    int tries = 0;
    Instant at;  ///< earliest time
  };

  std::uint64_t ask(std::string_view what, Millis limit, EtcdQuestion question,
                    LeadershipActions& out);
  void revoke(std::int64_t lease, LeadershipActions& out);
  void look(Instant now, LeadershipActions& out);
  void look_after(Millis pause, Instant now);
  void look_failed(const Error& error, Instant now, LeadershipActions& out);
  void on_look(const EtcdTransactionReply& reply, Instant now, LeadershipActions& out);
  void on_leader(const EtcdEntry& entry, Instant now, LeadershipActions& out);
  void claim(const std::optional<EtcdEntry>& term, Instant now, LeadershipActions& out);
  void on_grant(const EtcdLease& lease, LeadershipActions& out);
  void on_claim(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out);
  void on_seek(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out);
  void renew(Instant now, LeadershipActions& out);
  void on_renewal(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out);
  void write(Instant now, LeadershipActions& out);
  void on_write(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out);
  void on_end(const Result<EtcdAnswer>& answer, LeadershipActions& out);
  void written(LeadershipActions& out);
  void resign_leadership(Instant now);
  void lose(std::string why, Instant now, LeadershipActions& out);
  void trouble(const Error& error, LeadershipActions& out);
  void answer_came() { is_troubled_ = false; }
  [[nodiscard]] bool is_ours(const std::optional<EtcdEntry>& leader) const;
  [[nodiscard]] std::vector<EtcdCompare> still_leads() const;
  [[nodiscard]] Millis time_left(Instant now) const;
  [[nodiscard]] Millis validity(std::int64_t granted_s) const;
  [[nodiscard]] Millis look_every() const;
  [[nodiscard]] Millis spread() const;
  [[nodiscard]] Error about_key(const std::string& key, const Error& error) const;

  LeadershipOptions options_;
  EtcdKeys keys_;
  std::uint64_t last_id_ = 0;
  bool is_ended_ = false;
  bool is_troubled_ = false;
  std::string last_trouble_;

  Step step_ = Step::wait;
  std::uint64_t seek_id_ = 0;
  Instant look_at_ = Instant::max();
  Millis look_pause_;
  bool is_free_ = false;  ///< there was no leader at the last look: the next one may claim
  std::optional<Leader> known_;
  // of the pending claim
  std::uint32_t claimed_term_ = 0;
  std::int64_t term_modified_ = 0;
  Instant claim_asked_;
  EtcdLease claim_lease_;
  std::string claim_value_;

  std::optional<Leading> leading_;
  Renewal renewal_ = Renewal::wait;
  std::uint64_t renewal_id_ = 0;
  Instant renewal_sent_;
  std::int64_t renewed_ttl_s_ = 0;
  std::optional<Write> write_;
  std::uint64_t end_id_ = 0;
  std::int64_t ended_lease_ = 0;
};

}  // namespace acc::rendezvous
