#pragma once

#include "agent/event_log.hpp"
#include "agent/job_events.hpp"
#include "agent/job_metrics.hpp"
#include "agent/metrics_server.hpp"
#include "agent/status_text.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

class JobStatus;
class NodeHealth;
class OutputHub;
class RoundTerms;
class UserMessages;

/// When running workers' progress is an event: every ten seconds, in a new round, and as soon as
/// their rate is known. Pure.
class ProgressRhythm {
 public:
  static constexpr Millis kPeriod{10'000};
  /// @return whether it is now, which then counts as told
  bool is_due(Round round, bool has_rate, Instant now);

 private:
  std::optional<Round> round_;
  Instant told_{};
  bool had_rate_ = false;
};

/// What is recorded of the job's course on this node: events for --events and for the launching
/// host, metrics for --metrics.
///
/// Used on the loop's thread only.
class JobTelemetry {
 public:
  /// All outlive it: the agent owns them.
  struct Parts {
    boost::asio::io_context& io;
    const JobPlan& plan;
    const GroupState& group;
    const UserMessages& messages;
    OutputHub& output;
    JobStatus& status;
    const NodeHealth& health;
  };
  explicit JobTelemetry(const Parts& parts) : parts_{parts} {}

  /// @param node  the name of this node, which may change when it joins
  void open(const std::string& job_id, std::function<std::string()> node, pid_t guardian);
  [[nodiscard]] JobEvents& events() { return events_; }
  /// Whether the nodes of a round are of use.
  [[nodiscard]] bool wants_nodes() const { return events_.is_open() || server_; }
  void round_started(const RoundTerms& terms, const std::vector<WorkerRecord>& workers);
  /// Of the running workers.
  void progress(Round round, const std::vector<WorkerProgress>& workers);

  /// No more metrics.
  void close() { server_.reset(); }
  /// Before the report is written: waits for the events so far, and adds what of them was lost.
  void settle(JobReport& report);
  /// The last event, which has the exit code; where it is lost, the report's text says so.
  void finish(JobReport& report);

 private:
  void open_events(const std::string& job_id, std::function<std::string()> node, pid_t guardian);
  void open_metrics(const std::string& node);
  [[nodiscard]] JobMetrics metrics() const;

  Parts parts_;
  JobEvents events_;
  std::unique_ptr<EventLog> log_;          ///< --events
  std::unique_ptr<MetricsServer> server_;  ///< --metrics
  ProgressRhythm rhythm_;
  bool is_file_stuck_ = false;  ///< --events has taken nothing for as long as it is waited for
};

}  // namespace acc::agent
