#pragma once

#include "rendezvous/messages.hpp"

#include <vector>

/// One message of each kind with every field set: what the golden frames hold. Change nothing here
/// once a version is released; a new field gets its own sample.
namespace acc::rendezvous {

inline const Epoch kSampleEpoch{.term = {.number = 3, .candidate = 2}, .round = Round{7}};

inline RestartLedger sample_ledger() {
  return {.restarts = 3, .budget_used = 2, .quick_failures = 1, .without_progress = 4};
}

inline Failure sample_failure() {
  return {.kind = Failure::Kind::signaled,
          .code = 11,
          .rank = Rank{5},
          .local_rank = LocalRank{1},
          .node = "b",
          .host = "b.example",
          .cause = "killed by SIGSEGV (11)",
          .error = "ValueError: no data",
          .traceback = "Traceback (most recent call last):\n  File \"train.py\", line 7\n",
          .last_lines = "step 12\nstep 13\n",
          .log_path = "/logs/attempt_1/1/stderr.log",
          .stacks_path = "/logs/stacks-1.txt",
          .no_restart = "loss is NaN",
          .hint = "more memory",
          .error_lines = "ValueError: no data\n",
          .error_age = 300,
          .pid = 4711,
          .ago = Millis{1234},
          .round = Round{7},
          .into_round = Millis{61'000},
          .is_final = true,
          .out_of_memory = true};
}

inline JobPolicy sample_policy() {
  return {.restart = {.max_restarts = 5,
                      .delay_base = Millis{500},
                      .delay_max = Millis{30'000},
                      .jitter = 0.25,
                      .healthy_after = Millis{90'000},
                      .refill_after = Millis{3'600'000},
                      .max_no_progress = 2,
                      .has_progress_file = true,
                      .never_retry = {{2, 2}, {64, 78}}},
          .grace = Millis{10'000},
          .preempt_signals = {10, 15},
          .preempt_grace = Millis{25'000},
          .join_timeout = Millis{300'000},
          .last_call = Millis{20'000},
          .scale_up_now = true,
          .master = HostPort{"10.0.0.1", 29500}};
}

inline Join sample_join() {
  return {.job = "night-run",
          .node = {"b", 0x1122334455667788},
          .host = "b.example",
          .address = "10.0.0.2",
          .listens = 40123,
          .slots = 8,
          .wanted = NodeRank{1},
          .nodes_min = 2,
          .nodes_max = 4,
          .facts = {{"script", "train.py", 0xfeedface}, {"precision", "bf16", 0xbeef}},
          .state = NodeState::running,
          .epoch = kSampleEpoch,
          .node_rank = NodeRank{1},
          .first_rank = Rank{8},
          .nodes = 3,
          .established = {.nodes = 4, .rank = NodeRank{2}},
          .ledger = sample_ledger(),
          .vote = {.number = 4, .candidate = 1},
          .policy = sample_policy()};
}

inline Assigned sample_assigned() {
  return {.stamp = 99,
          .spare = true,
          .node_rank = NodeRank{1},
          .nodes = 3,
          .established = {.nodes = 4, .rank = NodeRank{2}},
          .first_rank = Rank{8},
          .world_size = WorldSize{24},
          .ledger = sample_ledger(),
          .max_restarts = 3,
          .reason = "rank 5 on b killed by SIGSEGV (11)",
          .standbys = {{"b", NodeRank{1}, {"10.0.0.2", 40123}},
                       {"c", NodeRank{2}, {"10.0.0.3", 40124}}}};
}

inline std::vector<Message> sample_messages() {
  return {
      sample_join(),
      Ready{.heartbeat = 1, .echo = 99, .master_port = 29500},
      Heartbeat{.heartbeat = 17, .echo = 0x0102030405060708},
      WorkerFailed{sample_failure()},
      Completed{true},
      Stopped{.progress = true},
      SignalRequest{.signo = 2},
      Leave{"drained"},
      TableRequest{},
      RestartRequest{},
      Welcome{.coordinator = "a",
              .stamp = 98,
              .heartbeat_timeout = Millis{1000},
              .lease = Millis{2000}},
      Refused{.refusal = Refusal::not_coordinator,
              .what = "a leads this job since 3 s",
              .redirect = {"10.0.0.1", 29401},
              .for_ever = false},
      sample_assigned(),
      Start{.master = {"10.0.0.1", 29500}, .heartbeat = 1, .granted = Millis{2000}},
      HeartbeatAck{
          .heartbeat = 17, .stamp = 100, .granted = Millis{2000}, .clock_ms = 1'800'000'000'123},
      Stop{.why = Stop::Why::end,
           .signo = 15,
           .grace = Millis{10'000},
           .by = "b",
           .reason = "Ctrl-C on b",
           .failure = sample_failure(),
           .lost = {{"b", Rank{8}, 8}, {"c", Rank{16}, 4}}},
      Signal{.signo = 10},
      Close{.outcome = Outcome::failed,
            .exit_code = 139,
            .reason = "no restart left",
            .first = sample_failure(),
            .ledger = sample_ledger(),
            .finished = {{"c", Rank{16}, 4}}},
      Notice{"waits for 1 of 3 nodes: rank 2"},
      RestartReply{"the job is over"},
      Table{.first = 1,
            .nodes = 3,
            .rows = {{"b", "b.example", "10.0.0.2", Rank{8}, 8},
                     {"c", "c.example", "10.0.0.3", Rank{16}, 8}}},
      Probe{.stamp = 101},
      LeaderMoved{.job = "night-run", .to = {"10.0.0.2", 40123}},
      KvRequest{.id = 5,
                .op = KvRequest::Op::compare_set,
                .key = "nccl/id",
                .value = "new",
                .expected = "old",
                .delta = -2,
                .count = 24,
                .timeout = Millis{60'000}},
      KvReply{.id = 5, .status = KvReply::Status::differs, .value = "other", .number = -7},
      KvRestore{.key = "steps", .value = "v", .added = 12},
  };
}

}  // namespace acc::rendezvous
