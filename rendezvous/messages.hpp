#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/ids.hpp"
#include "common/restart_policy.hpp"
#include "common/round_end.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Every message between an agent and the coordinator, the version and the limits. Encoding:
/// docs/protocol.md. Times on the wire are durations; a `stamp` is the sender's own monotonic clock
/// and is only compared by the sender (P8).
namespace acc::rendezvous {

/// Peers with the same major version are compatible if their minor versions differ by at most one:
/// unknown message types and trailing fields are then skipped.
inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 0;

/// Bytes, including the header; a longer one closes the connection.
inline constexpr std::size_t kMaxFrame = std::size_t{1024} * 1024;
/// The first frame to a listener, before its sender is welcomed.
inline constexpr std::size_t kMaxFirstFrame = std::size_t{16} * 1024;
inline constexpr std::size_t kMaxText = 4096;  ///< bytes of any text except values of the store
inline constexpr std::size_t kMaxFacts = 16;
inline constexpr std::size_t kMaxStandbys = 8;
inline constexpr std::size_t kMaxTableRows = 8192;  ///< in one Table; a longer table comes in parts
inline constexpr std::size_t kMaxSmallList = 64;    ///< exit code classes, signals, lost nodes
inline constexpr std::size_t kMaxKey = 256;         ///< bytes of a key of the store
inline constexpr std::size_t kMaxValue = std::size_t{256} * 1024;

/// Number of a coordinator's term. `candidate` breaks ties, so that two standbys can't win the same
/// term.
struct Term {
  std::uint32_t number = 0;     ///< 0: none yet; the first coordinator has 1
  std::uint32_t candidate = 0;  ///< node rank + 1 of an elected coordinator, 0 for the first
  friend auto operator<=>(const Term&, const Term&) = default;
};

/// Fences every frame: a frame of another epoch has no effect.
struct Epoch {
  Term term;
  Round round{0};
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

/// A node is identified by its name; an agent by its incarnation.
struct NodeId {
  std::string name;
  std::uint64_t incarnation = 0;
  friend bool operator==(const NodeId&, const NodeId&) = default;
};

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

/// The last round that all its members knew, as a member of a later one sees it. Until all know the
/// later one, too, an election needs a majority of both.
struct EstablishedRound {
  std::uint32_t nodes = 0;       ///< 0: none, or all know the later one
  std::optional<NodeRank> rank;  ///< the member's own; nothing: it had no place in it
  friend bool operator==(const EstablishedRound&, const EstablishedRound&) = default;
};

/// A property that nodes compare when they join, with a value to display: {"precision", "bf16"}.
struct JobFact {
  std::string name;
  std::string value;       ///< printable, shortened
  std::uint64_t hash = 0;  ///< of the whole value
  friend bool operator==(const JobFact&, const JobFact&) = default;
};

/// The ranks of a node that was lost, or that had finished.
struct NodeRanks {
  std::string node;
  RankRange ranks{Rank{0}, 0};
  friend bool operator==(const NodeRanks&, const NodeRanks&) = default;
};

/// Progress of a node in the round that it knows.
enum class NodeState : std::uint8_t {
  nothing,    ///< never had a place, or its workers are gone and reported so
  assigned,   ///< has a place, no worker started
  running,    ///< has workers
  completed,  ///< all its workers ended with 0
  stopped,    ///< had workers in this round, all gone
};

/// The cause of a worker's end, or of its failed start; the coordinator forwards the first one to
/// all nodes.
struct Failure {
  enum class Kind : std::uint8_t { exited, signaled, cannot_start, node_lost, unkillable };
  Kind kind = Kind::exited;
  std::int32_t code = 0;  ///< exit code, signal number or errno, by kind
  Rank rank{0};
  LocalRank local_rank{0};
  std::string node;
  std::string host;
  std::string cause;  ///< in words: "killed by SIGSEGV (11)", "lost: no traffic for 5 s"
  // Output of the worker, its end only; empty: none.
  std::string error;       ///< the message in its error file
  std::string traceback;   ///< … and the traceback in it
  std::string last_lines;  ///< of its output
  std::string log_path;
  std::string stacks_path;  ///< of a hang: the file with all ranks' stacks, on that host
  std::string no_restart;   ///< why a restart won't help, as the worker reported
  std::string hint;         ///< what to do about it, as its node knows; empty: not known
  std::string error_lines;  ///< of its output, in front of last_lines; see FailureReport
  std::uint32_t error_age = 0;
  std::int64_t pid = 0;
  Millis ago{0};               ///< before this message was sent
  Round round{0};              ///< in which it happened; set by the coordinator
  Millis into_round{0};        ///< after the round's start on that node
  bool is_final = false;       ///< the worker itself reported that a restart won't help
  bool out_of_memory = false;  ///< the kernel killed it for lack of memory

  /// A worker that hung: it is sent as an exit with ExitCode::hang, by which restarts are decided
  /// as well, and its cause tells it from a worker that exited with that code.
  [[nodiscard]] bool is_hang() const {
    return kind == Kind::exited && code == to_int(ExitCode::hang) && cause.starts_with("hung");
  }
  /// Nothing: no process ended, or not by itself. Of a hang see is_hang().
  [[nodiscard]] std::optional<ExitStatus> exit_status() const {
    if (kind == Kind::exited) return Exited{code};
    if (kind == Kind::signaled) return Signaled{code, false};
    return std::nullopt;
  }
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// An agent that may become coordinator, and the address of its listener.
struct Standby {
  std::string node;
  NodeRank node_rank{0};
  HostPort at;
  friend bool operator==(const Standby&, const Standby&) = default;
};

/// The job's settings for restarts and stops. The coordinator takes them from its own node's plan;
/// a standalone one from the first agent that joins.
struct JobPolicy {
  RestartPolicy restart;
  Millis grace{15'000};
  std::vector<std::int32_t> preempt_signals;
  Millis preempt_grace{30'000};
  Millis join_timeout{600'000};
  std::optional<Millis> last_call;  ///< empty: the default of docs/operations.md
  bool scale_up_now = false;        ///< a new node immediately causes a new round
  std::optional<HostPort> master;   ///< port 0: any free one on node rank 0

  /// What the workers get after this signal, which ended the job.
  [[nodiscard]] Millis grace_after(int signo) const {
    return stop_request(signo, preempt_signals).is_preemption ? preempt_grace : grace;
  }
};

// ---- agent → coordinator ----

/// The first frame of every connection: the agent, its job, and its state in it.
struct Join {
  std::uint16_t version_major = kVersionMajor;
  std::uint16_t version_minor = kVersionMinor;
  std::string job;
  NodeId node;
  std::string host;  ///< for display and ordering
  std::string
      address;  ///< where workers of other nodes reach this node; empty: the socket's address
  std::uint16_t listens = 0;       ///< port of this agent's own listener, for an election; 0: none
  std::uint32_t slots = 0;         ///< workers on this node
  std::optional<NodeRank> wanted;  ///< set by the user or the scheduler
  std::uint32_t nodes_min = 1;
  std::uint32_t nodes_max = 1;
  std::vector<JobFact> facts;
  // Its knowledge of the job, after a loss of the coordinator.
  NodeState state = NodeState::nothing;
  Epoch epoch;  ///< of the last assignment; term.number 0: none so far
  NodeRank node_rank{0};
  Rank first_rank{0};
  std::uint32_t nodes = 0;       ///< in that round
  EstablishedRound established;  ///< before that round
  RestartLedger ledger;
  /// Term of the last coordinator that welcomed it: it accepts no older one. An agent that isn't
  /// coordinator counts the Join as a vote for a newer term.
  Term vote;
  std::optional<JobPolicy> policy;
};

/// The place is taken, and the lease counts from the sending of this message, if Start follows.
struct Ready {
  std::uint32_t heartbeat = 0;
  std::uint64_t echo = 0;         ///< the newest stamp of the coordinator
  std::uint16_t master_port = 0;  ///< free on this node, if it has node rank 0; else 0
};

struct Heartbeat {
  std::uint32_t heartbeat = 0;
  std::uint64_t echo = 0;  ///< the newest stamp of the coordinator
};

struct WorkerFailed {
  Failure failure;
};
/// All workers of this node exited with 0.
struct Completed {
  bool progress = false;  ///< as that of Stopped
};
/// No process of the round is left on this node.
struct Stopped {
  bool progress = false;  ///< in the round: --progress_file changed, or a checkpoint was reported
};
/// A signal that one agent received, meant for the whole job.
struct SignalRequest {
  std::int32_t signo = 0;
};
/// This agent leaves; its workers are gone already.
struct Leave {
  std::string why;
};
struct TableRequest {};
/// One more round of all workers, without a failure: its user asked for it over the control socket
/// of this agent. It uses up none of the restarts.
struct RestartRequest {};

// ---- coordinator → agent ----

struct Welcome {
  std::string coordinator;  ///< node name
  std::uint64_t stamp = 0;
  Millis heartbeat_timeout{5000};  ///< silence after which a peer counts as lost
  Millis lease{10'000};
};

enum class Refusal : std::uint8_t {
  version,
  wrong_job,
  mismatch,         ///< of facts, slots or node counts
  duplicate,        ///< another agent has that node name or rank
  stale,            ///< an older epoch
  not_coordinator,  ///< knows a live coordinator, at `redirect`
  closed,
  moved,  ///< another coordinator took over, at `redirect`
};
struct Refused {
  Refusal refusal = Refusal::mismatch;
  std::string what;  ///< whole sentence, with both values
  HostPort redirect;
  bool for_ever = true;  ///< false: try again later
};

struct Assigned {
  std::uint64_t stamp = 0;
  bool spare = false;  ///< beyond the maximum: waits; the other fields are unused
  NodeRank node_rank{0};
  std::uint32_t nodes = 1;
  EstablishedRound established;  ///< before this one
  Rank first_rank{0};
  WorldSize world_size{1};
  RestartLedger ledger;
  std::uint32_t max_restarts = 0;  ///< the coordinator's limit
  std::string
      reason;  ///< of the restart; empty in the first round; to a spare: the state of the job
  std::vector<Standby> standbys;
};

struct Start {
  HostPort master;
  std::uint32_t heartbeat = 0;  ///< of the Ready that this answers
  Millis granted{0};
};

struct HeartbeatAck {
  std::uint32_t heartbeat = 0;
  std::uint64_t stamp = 0;
  Millis granted{0};  ///< the lease ends this long after the heartbeat was sent; 0: no lease
  /// The coordinator's wall clock, ms since 1970, to tell people of a difference; 0: unknown.
  std::uint64_t clock_ms = 0;
};

/// End the round's workers.
struct Stop {
  enum class Why : std::uint8_t { restart, end, membership };
  /// membership: the round has not failed; nodes joined, or a restart was asked for.
  Why why = Why::restart;
  std::int32_t signo = 0;  ///< sent first; 0: SIGTERM
  Millis grace{15'000};
  std::string by;      ///< node that received the request; empty: none
  std::string reason;  ///< for display: "rank 3 on b killed by SIGSEGV (11)"
  // Known losses, so that survivors can abort their collectives and name the cause.
  std::optional<Failure> failure;  ///< the first worker that failed, without its output
  std::vector<NodeRanks> lost;
};

/// A signal that ends nothing (SIGUSR1, SIGUSR2, SIGHUP by policy), for all workers.
struct Signal {
  std::int32_t signo = 0;
};

struct Close {
  Outcome outcome = Outcome::succeeded;
  std::int32_t exit_code = 0;
  std::string reason;
  std::optional<Failure> first;
  RestartLedger ledger;
  /// Of a failure: nodes all of whose workers had exited with 0 before the order to stop.
  std::vector<NodeRanks> finished;
};

/// Begins the text of a notice that is shown as a warning.
inline constexpr std::string_view kWarningNotice = "warning: ";
/// A line for the users of all nodes: "waits for 1 of 3 nodes: rank 2".
struct Notice {
  std::string text;
};

struct TableRow {
  std::string node;
  std::string host;
  std::string address;
  RankRange ranks{Rank{0}, 0};
  friend bool operator==(const TableRow&, const TableRow&) = default;
};
struct Table {
  std::uint32_t first = 0;  ///< node rank of rows[0]
  std::uint32_t nodes = 0;  ///< in total
  std::vector<TableRow> rows;
};

/// Answers a RestartRequest.
struct RestartReply {
  std::string why_not;  ///< empty: all workers start anew, now or with the next round
};

/// Answered immediately by a Heartbeat: its echo proves that the agent follows this coordinator
/// now.
struct Probe {
  std::uint64_t stamp = 0;
};

// ---- elected coordinator → the process at the job's seed endpoint ----

struct LeaderMoved {
  std::string job;
  HostPort to;
};

// ---- key-value store of the round: agent → coordinator → agent ----

struct KvRequest {
  enum class Op : std::uint8_t {
    set,
    get,
    add,
    wait,
    barrier,
    remove,
    compare_set,
    current  ///< not a store operation: may this round still write?
  };
  std::uint64_t id = 0;  ///< chosen by the asker, repeated in the reply
  Op op = Op::get;
  std::string key;
  std::string value;        ///< set; compare_set: the new one
  std::string expected;     ///< compare_set; empty: the key must not exist
  std::int64_t delta = 0;   ///< add
  std::uint32_t count = 0;  ///< barrier: number of participants
  Millis timeout{0};        ///< get, wait, barrier, current: 0 = answer immediately
};
struct KvReply {
  enum class Status : std::uint8_t {
    ok,
    missing,
    timed_out,
    too_big,
    full,
    wrong_round,
    bad_request,
    differs
  };
  std::uint64_t id = 0;
  Status status = Status::ok;
  std::string value;
  /// add: the new sum; barrier: the order of arrival, or the number that had arrived at the
  /// timeout; current: no later round begins for this many milliseconds from the request.
  std::int64_t number = 0;
};
/// Replays a write of an agent's workers in this round, after an election.
struct KvRestore {
  std::string key;
  std::string value;
  std::int64_t added = 0;  ///< this node's share of a counter; 0: it is a value
};

using Message = std::variant<Join, Ready, Heartbeat, WorkerFailed, Completed, Stopped,
                             SignalRequest, Leave, TableRequest, RestartRequest, Welcome, Refused,
                             Assigned, Start, HeartbeatAck, Stop, Signal, Close, Notice, Table,
                             Probe, RestartReply, LeaderMoved, KvRequest, KvReply, KvRestore>;

/// A message with its epoch, which is sent in the header.
struct Frame {
  Epoch epoch;
  Message message;
};

}  // namespace acc::rendezvous
