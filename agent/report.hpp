#pragma once

#include "agent/error_file.hpp"
#include "agent/group_state.hpp"
#include "agent/output/losses.hpp"
#include "agent/watch/goodput.hpp"
#include "agent/worker_group.hpp"
#include "common/duration.hpp"
#include "common/round_end.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The report at the end of a job: a block of text for the terminal, JSON for programs (pure; files
/// are written by the agent).
namespace acc::agent {

/// One failed worker, with everything that helps to understand it.
struct FailureReport {
  WorkerRecord worker;
  std::string cause;  ///< "killed by SIGKILL (9), not by OOM"
  std::uint64_t round = 0;
  bool out_of_memory = false;
  Millis into_round{0};
  std::chrono::system_clock::time_point when;  ///< for printing only
  std::optional<WorkerError> error;            ///< from its error file
  std::string tail;                            ///< its last output, without colours
  /// Lines of its output that name its last error, where the lines that are shown don't.
  std::vector<std::string> error_lines;
  /// Lines behind that error, where it may be an older one that the worker survived; 0: it isn't.
  std::uint32_t error_age = 0;
  /// Of a lost connection: "rank 1 had written: KeyError: 'label'", of ranks here that failed later
  /// or that we stopped; one of them is the probable cause.
  std::vector<std::string> other_errors;
  std::string log_path;                        ///< empty: no log file
  std::string stacks_path;                     ///< of a hang: all ranks' stacks; empty: none
  std::string no_restart{};                    ///< the worker said why a restart won't help
  std::string hint{};                          ///< what to do about it; empty: not known
  std::string unread_error{};                  ///< why its error file can't be read; empty: it can
};

/// The decisive failure, on another node, as that node's agent reported it.
struct FailureElsewhere {
  /// Without a memory figure; pid 0, no exit status: not of a worker; a pid alone: it hung.
  FailureReport failure;
  std::string node;  ///< "b"; of a lost one "node b (node rank 1)"
  std::string host;
  bool is_node = false;  ///< the node itself was lost; the rank is its first one
};

struct JobReport {
  std::string job_id;
  std::string host;
  pid_t pid = 0;  ///< of the guardian
  std::vector<std::string> command;
  std::string node_name;  ///< --node_name; empty: not given
  std::uint32_t world_size = 1;
  Outcome outcome = Outcome::succeeded;
  int exit_code = 0;
  int stop_signal = 0;
  std::uint32_t restarts = 0;       ///< in all
  std::uint32_t restarts_used = 0;  ///< of max_restarts
  std::uint32_t max_restarts = 0;
  Millis duration{0};
  GoodputFigures goodput;
  std::vector<FailureReport>
      failures;                       ///< the first failure of each failed round, the oldest first
  std::vector<WorkerRecord> workers;  ///< of the last round
  std::optional<StartFailure> start_failure;
  std::string start_failure_words;
  std::optional<FailureElsewhere> elsewhere;
  std::vector<std::string> finished_elsewhere;  ///< "ranks 2-3 on b": had all exited with code 0
  std::string reason;  ///< of the end, where the verdict doesn't say it: which signal, which nodes
                       ///< are missing
  std::uint32_t failed_rounds = 0;    ///< by workers here; all of them, also those not listed
  std::uint32_t failed_attempts = 0;  ///< of the job, also by workers of other nodes
  /// On several nodes: why the last attempt was started, "rank 1 exited with code 7"; else empty.
  std::string restarted_after;
  std::size_t left_over_count = 0;
  std::vector<std::string> left_over;  ///< "sleep (pid 71)": ended by us after the workers
  std::vector<std::string> unkillable;
  std::vector<Losses> losses;
  std::string log_folder;
  bool is_unwritten = false;  ///< to --report
};

struct OomFacts {
  bool known = false;  ///< a counter of out-of-memory kills could be read
  std::uint64_t kills = 0;
  std::optional<std::uint64_t> limit_bytes;
  std::optional<std::uint64_t> peak_bytes;
  std::optional<Millis> last_kill{};  ///< before the worker's end; none: there was none, or unknown
};
/// Whether a worker that SIGKILL ended was one of the killed: the last kill was as late as that.
[[nodiscard]] bool is_out_of_memory(const OomFacts& oom);

/// A worker's end as text: "killed by SIGKILL (9): out of memory (limit 64 MiB)", "exited with
/// code 7".
/// @param cpu_limit  of processor time, if the worker had used it up
[[nodiscard]] std::string describe_cause(const ExitStatus& status, const OomFacts& oom,
                                         std::optional<std::chrono::seconds> cpu_limit = {});
/// "cannot start './x': Permission denied", with advice where there is one.
[[nodiscard]] std::string describe_start_failure(const StartFailure& failure,
                                                 const std::string& program,
                                                 const std::string& path);

/// Takes the last output of its worker, which has ended, and what that says of its last error.
void take_output(FailureReport& failure, std::string_view tail);

/// The failure that ended the job; nullptr if it ended for another reason.
[[nodiscard]] const FailureReport* decisive_failure(const JobReport& report);

/// The block for the terminal; empty if there is nothing to report (success without losses).
[[nodiscard]] std::string to_text(const JobReport& report, bool color);
[[nodiscard]] std::string to_json(const JobReport& report);
/// What the report of another process, as to_json makes it, counts as lost.
[[nodiscard]] std::vector<Losses> losses_in(std::string_view json);
/// Such a report with these as well; nothing: it is no whole report.
[[nodiscard]] std::optional<std::string> with_losses(std::string_view json,
                                                     const std::vector<Losses>& more);
/// How a job ended, as a report says it.
struct ReportEnd {
  std::string verdict;
  int exit_code = 0;
  std::string reason;
  int stop_signal = 0;
};
/// Such a report with another end; nothing: it is no report of an end.
[[nodiscard]] std::optional<std::string> with_end(std::string_view json, const ReportEnd& end);
/// The exit code in such a report; nothing: it has none.
[[nodiscard]] std::optional<int> exit_code_in(std::string_view json);
/// "2026-03-02 03:14:07 UTC"
[[nodiscard]] std::string utc_text(std::chrono::system_clock::time_point when);
/// "2026-03-02T03:14:07.000Z"
[[nodiscard]] std::string iso_utc(std::chrono::system_clock::time_point when);

}  // namespace acc::agent
