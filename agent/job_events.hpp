#pragma once

#include "agent/control_protocol.hpp"
#include "agent/health_findings.hpp"
#include "agent/report.hpp"
#include "agent/worker_group.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent {

/// What happened in a job on this node, in the order in which the agent saw it: counted, and where
/// --events is given written as lines of JSON (event_keys.hpp has the schema). Without --events an
/// event costs an addition.
class JobEvents {
 public:
  struct Counts {
    std::uint64_t rounds = 0;
    std::uint64_t restarts = 0;  ///< that this node saw; the job's own count is in its ledger
    std::uint64_t failures = 0;  ///< rounds that failed here
    std::uint64_t start_failures = 0;
    std::uint64_t workers_succeeded = 0;
    std::uint64_t workers_failed = 0;
    std::uint64_t workers_stopped = 0;  ///< asked by us before they ended
    std::uint64_t nodes_joined = 0;
    std::uint64_t nodes_lost = 0;
  };

  /// @param sink  takes one line without its end; empty: nothing is written
  void open(std::function<void(std::string_view)> sink, std::string job,
            std::function<std::string()> node);
  [[nodiscard]] bool is_open() const { return static_cast<bool>(sink_); }

  void job_started(const JobPlan& plan, pid_t guardian);
  struct RoundFacts {
    Round round{0};
    WorldSize world_size{1};
    std::uint32_t nodes = 1;
    NodeRank node_rank{0};
    std::uint32_t restarts = 0;
    std::string_view reason;
  };
  /// With an event for each of its workers.
  void round_started(const RoundFacts& facts, const std::vector<WorkerRecord>& workers);
  void worker_ended(Round round, const WorkerRecord& worker);
  void failed(const FailureReport& failure);
  void start_failed(Round round, const std::string& why);
  void restarting(std::uint32_t restarts, std::uint32_t max_restarts, Millis delay,
                  const std::string& reason);
  void stopping(int signo, Millis grace);
  struct Progress {
    Rank rank{0};  ///< the slowest one here
    std::uint64_t step = 0;
    std::optional<double> steps_per_second;
  };
  void progress(Round round, const Progress& progress);
  struct Straggler {
    Rank rank{0};
    double steps_per_second = 0;
    double times_slower = 0;  ///< than the median of the others here
    Millis since{0};          ///< so long ago its slow steps began
  };
  void straggler(Round round, const Straggler& found);
  /// The nodes of a round: those that had no part in the last one joined, those that are missing
  /// are lost.
  void nodes(const std::vector<control::NodeView>& table);
  void stop_ordered(const std::string& by, const std::string& reason);
  void health(const health::Finding& finding);
  void output_lost(const Losses& losses);
  void job_ended(const JobReport& report);

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Line;
  [[nodiscard]] Line line(std::string_view event);
  void put(const Line& line);

  std::function<void(std::string_view)> sink_;
  std::string job_;
  std::function<std::string()> node_;
  Instant began_ = clock_now();
  std::uint64_t next_ = 0;
  Counts counts_;
  std::vector<std::string> nodes_;  ///< of the last round, sorted
};

}  // namespace acc::agent
