#pragma once

#include <array>
#include <string_view>

/// What stands in a line of --events. The tables in docs/events.md are made from this, and a test
/// holds the lines to it.
namespace acc::agent {

/// Raised when an event or a key changes its meaning or is removed; both may be added at any
/// time.
inline constexpr int kEventsVersion = 1;

struct EventKey {
  std::string_view event;  ///< "" for a key of every line
  std::string_view name;
  std::string_view type;
  std::string_view meaning;
};

inline constexpr std::array kEventKeys{
    EventKey{"", "v", "number",
             "1; raised when an event or a key changes its meaning or is removed"},
    EventKey{"", "seq", "number", "from 0 in each job and node; a gap: lines were lost"},
    EventKey{"", "time", "text", "UTC, \"2026-03-02T03:14:07.000Z\", by this machine's clock"},
    EventKey{"", "t", "number", "seconds since the agent's start, by a clock that never jumps"},
    EventKey{"", "job", "text", "id of the run, as in ACC_JOB_ID; another one on each node"},
    EventKey{"", "node", "text",
             "name of this node; of two with one host name the later one gets its own when it has "
             "joined"},
    EventKey{"", "event", "text", "one of those below"},
    EventKey{"job_started", "version", "text", "of acc-launch"},
    EventKey{"job_started", "pid", "number", "of the acc-launch that was started"},
    EventKey{"job_started", "command", "list of texts",
             "what each worker runs; of a job of --hosts cut off with … if it is very long"},
    EventKey{"job_started", "workers", "number", "on this node"},
    EventKey{"job_started", "world_size", "number", "in the whole job, as planned"},
    EventKey{"job_started", "nodes_min", "number", "the job needs so many nodes"},
    EventKey{"job_started", "nodes_max", "number", "and uses at most so many"},
    EventKey{"job_started", "max_restarts", "number", "as given"},
    EventKey{"round_started", "round", "number", "from 0; shown as attempt elsewhere"},
    EventKey{"round_started", "workers", "number", "on this node"},
    EventKey{"round_started", "world_size", "number", "in this round"},
    EventKey{"round_started", "nodes", "number", "in this round"},
    EventKey{"round_started", "node_rank", "number", "of this node"},
    EventKey{"round_started", "restarts", "number", "of the job so far"},
    EventKey{"round_started", "reason", "text or null", "why the last round ended"},
    EventKey{"worker_started", "round", "number", ""},
    EventKey{"worker_started", "rank", "number", "in the whole job"},
    EventKey{"worker_started", "local_rank", "number", "on this node"},
    EventKey{"worker_started", "pid", "number", ""},
    EventKey{"worker_ended", "round", "number", ""},
    EventKey{"worker_ended", "rank", "number", "in the whole job"},
    EventKey{"worker_ended", "local_rank", "number", "on this node"},
    EventKey{"worker_ended", "pid", "number", ""},
    EventKey{"worker_ended", "exit_code", "number or null", "null: a signal killed it"},
    EventKey{"worker_ended", "signal", "text or null", "\"SIGKILL\""},
    EventKey{"worker_ended", "seconds", "number", "from its start to its exit"},
    EventKey{"worker_ended", "stopped_by_us", "true or false", "it was asked to end before it did"},
    EventKey{"worker_ended", "peak_rss_bytes", "number", "its largest resident memory"},
    EventKey{"failure", "round", "number", ""},
    EventKey{"failure", "rank", "number", "of the first worker that failed in this round here"},
    EventKey{"failure", "local_rank", "number", "on this node"},
    EventKey{"failure", "pid", "number", ""},
    EventKey{"failure", "cause", "text", "\"was killed by SIGKILL (9), not by OOM\""},
    EventKey{"failure", "out_of_memory", "true or false",
             "the kernel counted such a kill within 30 s before its end"},
    EventKey{"failure", "seconds_into_round", "number", "since that worker's start"},
    EventKey{"failure", "log", "text or null", "folder of its log files"},
    EventKey{"failure", "stacks", "text or null", "of a hang: the file with the workers' stacks"},
    EventKey{"failure", "error_lines", "list of texts",
             "of its output, those that name its last error; empty: `last_lines` do, or none"},
    EventKey{"failure", "error_age", "number",
             "lines behind that error, if it may be an older one that the worker survived; else 0"},
    EventKey{"failure", "last_lines", "list of texts", "of its output; 20 at most"},
    EventKey{"start_failed", "round", "number", ""},
    EventKey{"start_failed", "why", "text", "why the workers could not be started"},
    EventKey{"restart", "restarts", "number", "with this one; also those that were asked for"},
    EventKey{"restart", "max_restarts", "number", "as given"},
    EventKey{"restart", "delay_s", "number",
             "until the next round starts here; 0 on several "
             "nodes, where the coordinator waits"},
    EventKey{"restart", "reason", "text", "\"rank 1 exited with code 7\""},
    EventKey{"progress", "round", "number", "every 10 s, of a job whose workers send heartbeats"},
    EventKey{"progress", "rank", "number", "of this node's worker that has done the fewest steps"},
    EventKey{"progress", "step", "number", "of its last heartbeat"},
    EventKey{"progress", "steps_per_second", "number or null", "null: too few were seen"},
    EventKey{"straggler", "round", "number",
             "a rank is slower than others; told again if it was as fast as they for a minute"},
    EventKey{"straggler", "rank", "number", "of a worker of this node"},
    EventKey{"straggler", "steps_per_second", "number", "over its last 16 steps"},
    EventKey{"straggler", "times_slower", "number", "than the median of the others here"},
    EventKey{"straggler", "since_s", "number", "seconds ago its slow steps began"},
    EventKey{"stopping", "signal", "text", "that asked for it"},
    EventKey{"stopping", "grace_s", "number", "so long workers have to end"},
    EventKey{"node_joined", "name", "text",
             "of the node: it has a part in this round, and had "
             "none in the last"},
    EventKey{"node_joined", "host", "text", "of the node"},
    EventKey{"node_joined", "first_rank", "number", "of its workers"},
    EventKey{"node_joined", "workers", "number", "of the node"},
    EventKey{"node_lost", "name", "text", "of the node: it has no part in this round any more"},
    EventKey{"stop_ordered", "by", "text or null", "the node on which the round ended first"},
    EventKey{"stop_ordered", "reason", "text", "why the coordinator stops the round"},
    EventKey{"health", "probe", "text", "disk, memory, shm, cpu, name, net, gpu, command or clock"},
    EventKey{"health", "subject", "text or null", "a folder, \"GPU 3\", \"eth0\""},
    EventKey{"health", "severity", "text", "warning; unfit: the node leaves or doesn't begin"},
    EventKey{"health", "text", "text", "what was found"},
    EventKey{"output_lost", "where", "text", "\"stdout\", \"log files in DIR\""},
    EventKey{"output_lost", "why", "text", "\"No space left on device\""},
    EventKey{"job_ended", "verdict", "text", "as in the report: succeeded, failed …"},
    EventKey{"job_ended", "exit_code", "number", "of acc-launch"},
    EventKey{"job_ended", "restarts", "number", "of the job"},
    EventKey{"job_ended", "failed_rounds", "number", "on this node"},
    EventKey{"job_ended", "seconds", "number", "from the agent's start to its end"},
    EventKey{"job_ended", "reason", "text or null", "where no worker's failure was it"},
};

}  // namespace acc::agent
