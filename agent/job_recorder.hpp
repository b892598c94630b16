#pragma once

#include "agent/containment.hpp"
#include "agent/failed_attempts.hpp"
#include "agent/oom_watch.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/report.hpp"
#include "rendezvous/messages.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace acc::agent {

/// Records failures, lost output and left-over processes while a job runs, and makes its report.
class JobRecorder {
 public:
  /// All outlive the recorder: the agent owns them.
  JobRecorder(const JobPlan& plan, const WorkerGroup& workers, const OutputHub& output,
              const RunFolder& run_folder, const Containment& containment);

  // ---- failures ----
  /// Before the workers of a round are started.
  void begin_round(Round round);
  /// Dates a kill that came since the last look. Where nobody looks all count as new.
  void look_for_oom_kills() { memory_.look(); }
  /// See OomWatch::kills().
  [[nodiscard]] std::uint64_t oom_kills() { return memory_.kills(); }
  /// Of a worker that ended so; nothing of one that SIGKILL didn't end.
  [[nodiscard]] OomFacts oom_facts(const ExitStatus& status, Instant ended);
  [[nodiscard]] FailureReport describe(const WorkerFailure& failure);
  void add(FailureReport failure);
  /// The coordinator ends this round, as it has failed.
  void round_failed() { attempts_.attempt_failed(); }
  void take(const RestartLedger& of_next_round) { attempts_.take(of_next_round); }
  /// Where the stacks of a hang lie that is about to be described.
  void note_stacks(std::string path) { stacks_path_ = std::move(path); }
  [[nodiscard]] const FailureReport& latest() const { return failures_.back(); }
  /// @param program  as found on PATH; empty: it was not found
  [[nodiscard]] std::string words_for(const StartFailure& failure,
                                      const std::string& program) const;

  /// A process that outlived the workers and that we ended; each once in a round.
  void add_left_over(const LeftOver& process);

  // ---- the end ----
  /// How the coordinator closed a job on several nodes.
  struct LastWord {
    rendezvous::Close close;
    std::string node;  ///< this node's name
    Instant told;
  };
  struct JobEnd {
    std::string job_id;
    pid_t guardian = 0;
    End end;
    const GroupState& group;
    WorldSize world_size{1};
    std::uint32_t max_restarts = 0;
    std::string program;
    std::optional<LastWord> last_word;
    std::string reason;           ///< why this node ended without the coordinator
    std::string restarted_after;  ///< see JobReport
    GoodputFigures goodput;
  };
  [[nodiscard]] JobReport report(const JobEnd& job) const;

 private:
  [[nodiscard]] std::vector<std::string> other_errors(const FailureReport& first) const;

  const JobPlan& plan_;
  const WorkerGroup& workers_;
  const OutputHub& output_;
  const RunFolder& run_folder_;
  const Containment& containment_;
  Instant began_ = clock_now();
  OomWatch memory_;
  Round round_{0};
  std::vector<FailureReport> failures_;  ///< the first and the latest
  std::uint32_t failed_rounds_ = 0;      ///< by workers here
  FailedAttempts attempts_;              ///< of the job
  std::string stacks_path_;
  std::vector<std::string> left_over_;  ///< names; at most LeftOvers::kNamed
  std::size_t left_over_count_ = 0;
  std::set<pid_t> left_over_pids_;  ///< in this round
};

}  // namespace acc::agent
