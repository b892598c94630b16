#pragma once

#include <array>
#include <string_view>

/// What stands in the JSON of --report. The table in docs/operations.md is made from this, and a
/// test holds the JSON to it.
namespace acc::agent {

/// What a report begins with, without spaces and line ends.
inline constexpr std::string_view kReportBegin = "{\"format\":";

/// Raised when a key changes its meaning or is removed; keys may be added at any time.
inline constexpr int kReportFormat = 1;

struct ReportKey {
  std::string_view place;  ///< "" at the top, else the object that holds it
  std::string_view name;
  std::string_view type;
  std::string_view meaning;
};

inline constexpr std::array kReportKeys{
    ReportKey{"", "format", "number", "1; raised when a key changes its meaning or is removed"},
    ReportKey{"", "job", "text", "id of the run, as in ACC_JOB_ID; another one on each node"},
    ReportKey{"", "host", "text", "of this machine"},
    ReportKey{"", "pid", "number", "of the acc-launch that was started"},
    ReportKey{"", "command", "list of texts", "what each worker ran"},
    ReportKey{"", "world_size", "number", "workers in the whole job"},
    ReportKey{"", "verdict", "text",
              "succeeded, failed, never_retry (--no_restart_codes, or the worker asked for it), "
              "no_progress, cannot_start, stopped (by a signal), preempted, unkillable, "
              "guardian_lost (acc-launch was killed), nodes_missing, unfit (by --health); in a "
              "short report (format, host, "
              "pid, verdict, exit_code, reason) running, not_started, agent_lost"},
    ReportKey{"", "exit_code", "number", "of acc-launch"},
    ReportKey{"", "restarts", "number",
              "of all workers, in this job; also those that were asked for"},
    ReportKey{
        "", "restarts_used", "number",
        "of max_restarts: without those that were asked for or given back (--restart_refill)"},
    ReportKey{"", "max_restarts", "number", "as given"},
    ReportKey{"", "failed_attempts", "number",
              "of the job while this machine takes part; also those that `failures` leaves out, or "
              "that failed on another one"},
    ReportKey{"", "restarted_after", "text or null",
              "of a job on several nodes: why the last attempt was started: `rank 3 on b exited "
              "with code 1`; "
              "`failures` has this node's"},
    ReportKey{"", "seconds", "number", "from the agent's start to its end"},
    ReportKey{"", "stop_signal", "text or null", "the one that ended the job"},
    ReportKey{"", "first_failure", "failure or null", "what ended the job"},
    ReportKey{"", "finished_elsewhere", "list of texts",
              "of a failed job: other machines' ranks that had all finished, with exit code 0: "
              "\"ranks 2-3 on b\"; of the first 64 such machines"},
    ReportKey{"", "reason", "text or null", "of the end, where no worker's failure was it"},
    ReportKey{"", "failures", "list of failures",
              "the first of each failed attempt on this machine; of many the first and the latest"},
    ReportKey{"", "start_failure", "text or null", "why the workers could not be started"},
    ReportKey{"", "workers", "list of workers", "of this machine, in the last attempt"},
    ReportKey{"", "left_over", "list of texts",
              "processes that outlived the workers and that we ended: \"sleep (pid 71)\"; 32 at "
              "most"},
    ReportKey{"", "left_over_count", "number", "all of them"},
    ReportKey{"", "unkillable", "list of texts", "processes that survived SIGKILL"},
    ReportKey{"", "losses", "list of losses", "output that could not be written"},
    ReportKey{"", "log_folder", "text or null", "where the log files of this run are"},
    ReportKey{"", "goodput", "goodput", "what part of the time was of use"},
    ReportKey{"worker", "rank", "number", "in the whole job"},
    ReportKey{"worker", "local_rank", "number", "on this machine; null of a lost machine"},
    ReportKey{"worker", "pid", "number", "null where it isn't known"},
    ReportKey{"worker", "exit", "exit or null",
              "null: it was never started, or hung when its failure was told"},
    ReportKey{"worker", "seconds", "number or null", "from its start to its exit"},
    ReportKey{"worker", "stopped_by_us", "true or false", "it was asked to end before it did"},
    ReportKey{
        "worker", "peak_rss_bytes", "number or null",
        "resident memory; null where it isn't known: of another machine's, or before its end"},
    ReportKey{"failure", "host", "text", "where it happened"},
    ReportKey{"failure", "cause", "text", "\"was killed by SIGKILL (9), not by OOM\""},
    ReportKey{"failure", "attempt", "number", "from 0"},
    ReportKey{"failure", "seconds_into_attempt", "number", "since that worker's start"},
    ReportKey{"failure", "time", "text", "UTC, \"2026-03-02T03:14:07.000Z\""},
    ReportKey{"failure", "error", "error or null", "the exception that the worker wrote down"},
    ReportKey{"failure", "hint", "text or null", "what to do about it, where that is known"},
    ReportKey{"failure", "error_lines", "list of texts",
              "of its output, those that name its last error, where its last 20 lines and `error` "
              "don't"},
    ReportKey{"failure", "error_age", "number",
              "lines behind its last error, if that may be an older one that it survived; else 0"},
    ReportKey{
        "failure", "last_lines", "list of texts",
        "of its output; 100 at most; of many failures only the first and the latest have them"},
    ReportKey{
        "failure", "other_errors", "list of texts",
        "where it lost its connection to another rank: errors of other ranks on this machine, "
        "one of them the probable cause: \"rank 1 had written: KeyError: 'label'\"; only of "
        "`first_failure` and the same of `failures`"},
    ReportKey{"failure", "log", "text or null", "folder of its log files"},
    ReportKey{"failure", "stacks", "text or null",
              "of a hang: the file with the workers' stacks, on the failure's host; \"stderr\": no "
              "folder took it"},
    ReportKey{"failure", "no_restart", "text or null",
              "the worker asked not to be restarted, and why"},
    ReportKey{"failure", "node_lost", "true or false", "a whole machine: the rank is its first"},
    ReportKey{"exit", "code", "number", "it exited with"},
    ReportKey{"exit", "signal", "text", "or was killed by: \"SIGKILL\""},
    ReportKey{"exit", "signo", "number", "number of that signal"},
    ReportKey{"exit", "core_dumped", "true or false", "with that signal"},
    ReportKey{"error", "message", "text", "of the exception"},
    ReportKey{"error", "traceback", "text", "may be empty"},
    ReportKey{"goodput", "share", "number", "0 to 1: of `seconds`, without what follows"},
    ReportKey{"goodput", "seconds_waiting", "number", "until the first workers ran"},
    ReportKey{"goodput", "seconds_restarting", "number",
              "from each failure until the workers ran again, or the end"},
    ReportKey{"goodput", "seconds_lost_work", "number or null",
              "work of failed attempts after their last complete checkpoint; null: no worker "
              "reported one"},
    ReportKey{"loss", "where", "text", "\"stdout\", \"log files in DIR\""},
    ReportKey{"loss", "why", "text", "\"No space left on device\""},
    ReportKey{"loss", "bytes", "number", "that are missing"},
    ReportKey{"loss", "lines", "number", "that are missing"},
};

}  // namespace acc::agent
