#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/restart_policy.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Every message between an agent and the coordinator, the version and the limits. Their bytes:
/// docs/protocol.md. Times on the wire are durations; a `stamp` is the sender's own monotonic clock
/// and is only ever compared by the one who wrote it (P8).
namespace acc::rendezvous {

/// Peers with the same major version talk to each other if their minor versions differ by at most
/// one: unknown message types and trailing fields are then skipped.
inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 0;

/// Bytes with the header; a longer one closes the connection.
inline constexpr std::size_t kMaxFrame = std::size_t{1024} * 1024;
/// Until the peer is welcome.
inline constexpr std::size_t kMaxFirstFrame = std::size_t{16} * 1024;
inline constexpr std::size_t kMaxText = 4096;  ///< bytes of any text but a value of the store
inline constexpr std::size_t kMaxFacts = 16;
inline constexpr std::size_t kMaxStandbys = 8;
inline constexpr std::size_t kMaxTableRows = 8192;  ///< in one Table; a longer table comes in parts
inline constexpr std::size_t kMaxSmallList = 64;    ///< exit code classes, signals, lost nodes
inline constexpr std::size_t kMaxKey = 256;         ///< bytes of a key of the store
inline constexpr std::size_t kMaxValue = std::size_t{256} * 1024;

/// Counts coordinators. The tie-breaker is the standby that won, so that two can't share a term.
struct Term {
  std::uint32_t number = 0;  ///< 0: none yet; the first coordinator has 1
  std::uint32_t holder = 0;  ///< node rank + 1 of an elected coordinator, 0 for the first
  friend auto operator<=>(const Term&, const Term&) = default;
};

/// Fences every frame: what comes from another epoch has no effect.
struct Epoch {
  Term term;
  Round round{0};
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

/// A node is its name; an agent is its incarnation.
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

/// What all nodes of a job must agree on, with a value to show: {"script", "train.py"}.
struct Fact {
  std::string name;
  std::string value;       ///< printable, shortened
  std::uint64_t hash = 0;  ///< of the whole value
  friend bool operator==(const Fact&, const Fact&) = default;
};

/// A node that is no more, and its ranks.
struct LostNode {
  std::string node;
  Rank first_rank{0};
  std::uint32_t slots = 0;
  friend bool operator==(const LostNode&, const LostNode&) = default;
};

/// How far a node is with the round that it knows of.
enum class Holding : std::uint8_t {
  nothing,    ///< never had a place, or its workers are gone and told to be
  assigned,   ///< has a place, no worker started
  running,    ///< has workers
  completed,  ///< all its workers ended with 0
  stopped,    ///< had workers in this round, all gone
};

/// What ended a worker, or kept it from starting; the coordinator passes the first one on to all.
struct Failure {
  enum class Kind : std::uint8_t { exited, signaled, cannot_start, node_lost, unkillable };
  Kind kind = Kind::exited;
  std::int32_t code = 0;  ///< exit code, signal number or errno, by kind
  Rank rank{0};
  LocalRank local_rank{0};
  std::string node;
  std::string host;
  std::string cause;  ///< in words: "killed by SIGSEGV (11)", "lost: no traffic for 5 s"
  // What the worker wrote, shortened to its end; empty: nothing.
  std::string error;       ///< the message in its error file
  std::string traceback;   ///< … and how it came to it
  std::string last_lines;  ///< of its output
  std::string log_path;
  std::int64_t pid = 0;
  Millis ago{0};               ///< before this message was sent
  Round round{0};              ///< in which it happened; the coordinator sets it
  Millis into_round{0};        ///< after the round's start on that node
  bool is_final = false;       ///< the worker itself said that a restart won't help
  bool out_of_memory = false;  ///< the kernel killed it for that
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// An agent on which the roster may fall back: where it listens.
struct Standby {
  std::string node;
  NodeRank node_rank{0};
  HostPort at;
  friend bool operator==(const Standby&, const Standby&) = default;
};

/// How a job ended, for every node the same.
enum class Outcome : std::uint8_t {
  succeeded,
  failed,  ///< a failure, and no restart was left
  never_retry,
  no_progress,
  cannot_start,
  stopped,  ///< by a signal
  preempted,
  unkillable,
  nodes_missing,  ///< too few nodes came, or came back
};

/// What the job's owner decided about restarts and stops. The coordinator takes it from the plan of
/// its own node; one that stands alone, from the first agent that joins.
struct JobPolicy {
  RestartPolicy restart;  ///< progress_file stays empty: each node looks at its own
  Millis grace{15'000};
  std::vector<std::int32_t> preempt_signals;
  Millis preempt_grace{30'000};
  Millis join_timeout{600'000};
  std::optional<Millis> last_call;  ///< empty: as docs/operations.md says
  bool scale_up_now = false;        ///< a new node asks for a round at once
  std::optional<HostPort> master;   ///< port 0: any free one of node rank 0
};

// ---- agent → coordinator ----

/// The first frame of every connection: who comes, to which job, and what it still has.
struct Join {
  std::uint16_t version_major = kVersionMajor;
  std::uint16_t version_minor = kVersionMinor;
  std::string job;
  NodeId node;
  std::string host;     ///< for people and for ordering
  std::string address;  ///< where workers of other nodes reach this node; empty: as the socket says
  std::uint16_t listens = 0;       ///< port of this agent's own listener, for an election; 0: none
  std::uint32_t slots = 0;         ///< workers on this node
  std::optional<NodeRank> wanted;  ///< the user's or the scheduler's order
  std::uint32_t nodes_min = 1;
  std::uint32_t nodes_max = 1;
  std::vector<Fact> facts;
  std::int64_t wall_clock_ms = 0;  ///< only to warn of a skew
  // What it knows of the job, after a loss of the coordinator.
  Holding holding = Holding::nothing;
  Epoch epoch;  ///< of the last assignment; term.number 0: never had one
  NodeRank node_rank{0};
  Rank first_rank{0};
  std::uint32_t nodes = 0;  ///< in that round
  RestartLedger ledger;
  /// Of the last coordinator that welcomed it: it accepts no older one. An agent that isn't
  /// coordinator counts the Join as a vote for a newer term.
  Term vote;
  std::optional<JobPolicy> policy;
};

/// The place is taken and the lease counts from this moment, if Start comes.
struct Ready {
  std::uint32_t beat = 0;
  std::uint64_t echo = 0;         ///< the newest stamp of the coordinator
  std::uint16_t master_port = 0;  ///< free on this node, if it has node rank 0; else 0
};

struct Beat {
  std::uint32_t beat = 0;
  std::uint64_t echo = 0;
  Holding holding = Holding::nothing;
  std::uint32_t alive = 0;  ///< workers
};

struct WorkerFailed {
  Failure failure;
};
struct Completed {};
/// No process of the round is left on this node.
struct Stopped {
  bool progress = false;  ///< --progress_file changed during the round
};
/// A signal came to one agent; it is meant for the whole job.
struct Wish {
  std::int32_t signo = 0;
  std::uint32_t interrupts = 0;  ///< Ctrl-C so far on that node
};
/// This agent goes; its workers are gone already.
struct Leave {
  std::string why;
};
struct TableRequest {};

// ---- coordinator → agent ----

struct Welcome {
  std::string coordinator;  ///< node name
  std::uint64_t stamp = 0;
  Millis beat{1000};
  Millis dead{5000};  ///< silence after which a peer counts as lost
  Millis lease{10'000};
};

enum class Refusal : std::uint8_t {
  version,
  wrong_job,
  mismatch,   ///< of facts, slots or node counts
  duplicate,  ///< that node or rank is in already
  stale,      ///< an older epoch
  full,
  not_coordinator,  ///< knows a living one; `redirect` says where
  closed,
  moved,  ///< another coordinator took over; `redirect` says where
};
struct Refused {
  Refusal refusal = Refusal::mismatch;
  std::string what;  ///< whole sentence, both values named
  HostPort redirect;
  bool for_ever = true;  ///< false: try again later
};

struct Assigned {
  std::uint64_t stamp = 0;
  bool spare = false;  ///< beyond the maximum: waits, the rest means nothing
  NodeRank node_rank{0};
  std::uint32_t nodes = 1;
  Rank first_rank{0};
  WorldSize world_size{1};
  RestartLedger ledger;
  std::string reason;  ///< of the restart; empty in the first round; to a spare: how it stands
  std::vector<Standby> standbys;
};

struct Start {
  HostPort master;
  std::uint32_t beat = 0;  ///< of the Ready that this answers
  Millis granted{0};
};

struct BeatAck {
  std::uint32_t beat = 0;
  std::uint64_t stamp = 0;
  Millis granted{0};  ///< the lease ends so long after the beat was sent; 0: no lease
  std::uint32_t nodes_here = 0;
  std::uint32_t nodes_needed = 0;
};

/// End the round's workers.
struct Stop {
  enum class Why : std::uint8_t { restart, end, membership };
  Why why = Why::restart;
  std::int32_t signo = 0;  ///< to send first; 0: SIGTERM
  Millis grace{15'000};
  std::string by;      ///< node that asked; empty: nobody
  std::string reason;  ///< for people: "rank 3 on b killed by SIGSEGV (11)"
  // What is known dead, so that survivors can give up their collectives and say why.
  std::optional<Failure> failure;  ///< the first worker that failed, without its output
  std::vector<LostNode> lost;
};

/// A signal that ends nothing (SIGUSR1, SIGUSR2, SIGHUP as the policy says), for all workers.
struct Signal {
  std::int32_t signo = 0;
  std::string by;
};

struct Close {
  Outcome outcome = Outcome::succeeded;
  std::int32_t exit_code = 0;
  std::string reason;
  std::optional<Failure> first;
  RestartLedger ledger;
};

/// Something the users of all nodes should read: "waits for 1 of 3 nodes: rank 2".
struct Notice {
  std::string text;
};

struct TableRow {
  std::string node;
  std::string host;
  std::string address;
  Rank first_rank{0};
  std::uint32_t slots = 0;
  friend bool operator==(const TableRow&, const TableRow&) = default;
};
struct Table {
  std::uint32_t first = 0;  ///< node rank of rows[0]
  std::uint32_t nodes = 0;  ///< in all
  std::vector<TableRow> rows;
};

/// Answered by a Beat at once: its echo proves that the agent follows this coordinator now.
struct Probe {
  std::uint64_t stamp = 0;
};

// ---- elected coordinator → whoever sits at the job's first address ----

struct Moved {
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
    current  ///< not of the store: may this round still write?
  };
  std::uint64_t id = 0;  ///< chosen by the asker, comes back with the reply
  Op op = Op::get;
  std::string key;
  std::string value;        ///< set; compare_set: the new one
  std::string expected;     ///< compare_set; empty: the key must not be there
  std::int64_t delta = 0;   ///< add
  std::uint32_t count = 0;  ///< barrier: so many must come
  Millis timeout{0};        ///< get, wait, barrier, current: 0 = answer at once
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
  /// add: the new sum; barrier: the order of arrival, or how many had come when it timed out;
  /// current: for so many milliseconds from the asking no later round begins.
  std::int64_t number = 0;
};
/// After an election an agent tells again what its workers have put in this round.
struct KvRestore {
  std::string key;
  std::string value;
  std::int64_t added = 0;  ///< this node's share of a counter; 0: it is a value
};

using Message = std::variant<Join, Ready, Beat, WorkerFailed, Completed, Stopped, Wish, Leave,
                             TableRequest, Welcome, Refused, Assigned, Start, BeatAck, Stop, Signal,
                             Close, Notice, Table, Probe, Moved, KvRequest, KvReply, KvRestore>;

/// What travels: the epoch stands in the header.
struct Frame {
  Epoch epoch;
  Message message;
};

}  // namespace acc::rendezvous
