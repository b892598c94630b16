#pragma once

#include "rendezvous/messages.hpp"
#include "rendezvous/wire.hpp"

#include <concepts>
#include <string_view>
#include <type_traits>

/// The fields of every message, listed once, in the order on the wire. Structured bindings keep the
/// lists complete: a missing field doesn't compile. A new minor version adds fields at the end of a
/// message; the parts of messages (JobFact, TableRow …) never change.
namespace acc::rendezvous {

template <class T, class M>
concept Is = std::same_as<std::remove_const_t<T>, M>;

inline constexpr std::size_t kMaxCodeRanges = 256;
inline constexpr std::size_t kMaxPreemptSignals = 64;

// ---- parts ----

template <class A>
void fields(A& a, Is<Term> auto& part) {
  auto& [number, candidate] = part;
  a(number, candidate);
}
template <class A>
void fields(A& a, Is<Epoch> auto& part) {
  auto& [term, round] = part;
  a(term, round);
}
template <class A>
void fields(A& a, Is<NodeId> auto& part) {
  auto& [name, incarnation] = part;
  a(name, incarnation);
}
template <class A>
void fields(A& a, Is<HostPort> auto& part) {
  auto& [host, port] = part;
  a(host, port);
}
template <class A>
void fields(A& a, Is<JobFact> auto& part) {
  auto& [name, value, hash] = part;
  a(name, value, hash);
}
template <class A>
void fields(A& a, Is<NodeRanks> auto& part) {
  auto& [node, ranks] = part;
  a(node, ranks.first, ranks.count);
}
template <class A>
void fields(A& a, Is<Failure> auto& part) {
  auto& [kind, code, rank, local_rank, node, host, cause, error, traceback, last_lines, log_path,
         stacks_path, no_restart, hint, error_lines, error_age, pid, ago, round, into_round,
         is_final, out_of_memory] = part;
  a(kind, code, rank, local_rank, node, host, cause, error, traceback, last_lines, log_path,
    stacks_path, no_restart, hint, error_lines, error_age, pid, ago, round, into_round, is_final,
    out_of_memory);
}
template <class A>
void fields(A& a, Is<Standby> auto& part) {
  auto& [node, node_rank, at] = part;
  a(node, node_rank, at);
}
template <class A>
void fields(A& a, Is<EstablishedRound> auto& part) {
  auto& [nodes, rank] = part;
  a(nodes, rank);
}
template <class A>
void fields(A& a, Is<TableRow> auto& part) {
  auto& [node, host, address, ranks] = part;
  a(node, host, address, ranks.first, ranks.count);
}
template <class A>
void fields(A& a, Is<RestartLedger> auto& part) {
  auto& [restarts, budget_used, quick_failures, without_progress] = part;
  a(restarts, budget_used, quick_failures, without_progress);
}

template <class A>
void fields(A& a, Is<CodeRange> auto& part) {
  auto& [first, last] = part;
  a(first, last);
}
template <class A>
void fields(A& a, Is<RestartPolicy> auto& part) {
  auto& [max_restarts, delay_base, delay_max, jitter, healthy_after, refill_after, max_no_progress,
         has_progress_file, never_retry] = part;
  a(max_restarts, delay_base, delay_max, jitter, healthy_after, refill_after, max_no_progress,
    has_progress_file, limited(never_retry, kMaxCodeRanges));
}
template <class A>
void fields(A& a, Is<JobPolicy> auto& part) {
  auto& [restart, grace, preempt_signals, preempt_grace, join_timeout, last_call, scale_up_now,
         master] = part;
  a(restart, grace, limited(preempt_signals, kMaxPreemptSignals), preempt_grace, join_timeout,
    last_call, scale_up_now, master);
}

// ---- agent → coordinator ----

template <class A>
void fields(A& a, Is<Join> auto& m) {
  auto& [version_major, version_minor, job, node, host, address, listens, slots, wanted, nodes_min,
         nodes_max, facts, state, epoch, node_rank, first_rank, nodes, established, ledger, vote,
         policy] = m;
  a(version_major, version_minor, job, node, host, address, listens, slots, wanted, nodes_min,
    nodes_max, limited(facts, kMaxFacts), state, epoch, node_rank, first_rank, nodes, established,
    ledger, vote, policy);
}
template <class A>
void fields(A& a, Is<Ready> auto& m) {
  auto& [heartbeat, echo, master_port] = m;
  a(heartbeat, echo, master_port);
}
template <class A>
void fields(A& a, Is<Heartbeat> auto& m) {
  auto& [heartbeat, echo] = m;
  a(heartbeat, echo);
}
template <class A>
void fields(A& a, Is<WorkerFailed> auto& m) {
  auto& [failure] = m;
  a(failure);
}
template <class A>
void fields(A& a, Is<Completed> auto& m) {
  auto& [progress] = m;
  a(progress);
}
template <class A>
void fields(A& a, Is<Stopped> auto& m) {
  auto& [progress] = m;
  a(progress);
}
template <class A>
void fields(A& a, Is<SignalRequest> auto& m) {
  auto& [signo] = m;
  a(signo);
}
template <class A>
void fields(A& a, Is<Leave> auto& m) {
  auto& [why] = m;
  a(why);
}
template <class A>
void fields(A&, Is<TableRequest> auto&) {}
template <class A>
void fields(A&, Is<RestartRequest> auto&) {}

// ---- coordinator → agent ----

template <class A>
void fields(A& a, Is<Welcome> auto& m) {
  auto& [coordinator, stamp, dead, lease] = m;
  a(coordinator, stamp, dead, lease);
}
template <class A>
void fields(A& a, Is<Refused> auto& m) {
  auto& [refusal, what, redirect, for_ever] = m;
  a(refusal, what, redirect, for_ever);
}
template <class A>
void fields(A& a, Is<Assigned> auto& m) {
  auto& [stamp, spare, node_rank, nodes, established, first_rank, world_size, ledger, max_restarts,
         reason, standbys] = m;
  a(stamp, spare, node_rank, nodes, established, first_rank, world_size, ledger, max_restarts,
    reason, limited(standbys, kMaxStandbys));
}
template <class A>
void fields(A& a, Is<Start> auto& m) {
  auto& [master, heartbeat, granted] = m;
  a(master, heartbeat, granted);
}
template <class A>
void fields(A& a, Is<HeartbeatAck> auto& m) {
  auto& [heartbeat, stamp, granted, clock_ms] = m;
  a(heartbeat, stamp, granted, clock_ms);
}
template <class A>
void fields(A& a, Is<Stop> auto& m) {
  auto& [why, signo, grace, by, reason, failure, lost] = m;
  a(why, signo, grace, by, reason, failure, limited(lost, kMaxSmallList));
}
template <class A>
void fields(A& a, Is<Signal> auto& m) {
  auto& [signo] = m;
  a(signo);
}
template <class A>
void fields(A& a, Is<Close> auto& m) {
  auto& [outcome, exit_code, reason, first, ledger, finished] = m;
  a(outcome, exit_code, reason, first, ledger, limited(finished, kMaxSmallList));
}
template <class A>
void fields(A& a, Is<Notice> auto& m) {
  auto& [text] = m;
  a(text);
}
template <class A>
void fields(A& a, Is<Table> auto& m) {
  auto& [first, nodes, rows] = m;
  a(first, nodes, limited(rows, kMaxTableRows));
}

template <class A>
void fields(A& a, Is<Probe> auto& m) {
  auto& [stamp] = m;
  a(stamp);
}

template <class A>
void fields(A& a, Is<RestartReply> auto& m) {
  auto& [why_not] = m;
  a(why_not);
}

// ---- elected coordinator → the job's first address ----

template <class A>
void fields(A& a, Is<LeaderMoved> auto& m) {
  auto& [job, to] = m;
  a(job, to);
}

// ---- key-value store ----

template <class A>
void fields(A& a, Is<KvRequest> auto& m) {
  auto& [id, op, key, value, expected, delta, count, timeout] = m;
  a(id, op, limited(key, kMaxKey), limited(value, kMaxValue), limited(expected, kMaxValue), delta,
    count, timeout);
}
template <class A>
void fields(A& a, Is<KvReply> auto& m) {
  auto& [id, status, value, number] = m;
  a(id, status, limited(value, kMaxValue), number);
}
template <class A>
void fields(A& a, Is<KvRestore> auto& m) {
  auto& [key, value, added] = m;
  a(limited(key, kMaxKey), limited(value, kMaxValue), added);
}

// ---- the last value of each enumeration: a higher one belongs to a later version ----

constexpr NodeState last_value(NodeState) { return NodeState::stopped; }
constexpr Failure::Kind last_value(Failure::Kind) { return Failure::Kind::unkillable; }
constexpr Refusal last_value(Refusal) { return Refusal::moved; }
constexpr Stop::Why last_value(Stop::Why) { return Stop::Why::membership; }
constexpr KvRequest::Op last_value(KvRequest::Op) { return KvRequest::Op::current; }
constexpr KvReply::Status last_value(KvReply::Status) { return KvReply::Status::differs; }

constexpr std::string_view noun_of(NodeState) { return "state"; }
constexpr std::string_view noun_of(Failure::Kind) { return "kind of failure"; }
constexpr std::string_view noun_of(Refusal) { return "refusal"; }
constexpr std::string_view noun_of(Stop::Why) { return "cause of a stop"; }
constexpr std::string_view noun_of(KvRequest::Op) { return "operation"; }
constexpr std::string_view noun_of(KvReply::Status) { return "status"; }

}  // namespace acc::rendezvous

// Found here by argument-dependent lookup.
namespace acc {
constexpr Outcome last_value(Outcome) { return Outcome::nodes_missing; }
constexpr std::string_view noun_of(Outcome) { return "outcome"; }
}  // namespace acc
