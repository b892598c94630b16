#pragma once

#include "agent/control_protocol.hpp"
#include "agent/gpu_watch.hpp"
#include "agent/round_terms.hpp"
#include "agent/status_line.hpp"
#include "agent/supervisor_timers.hpp"
#include "agent/worker_group.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

class JobWatch;
class RunFolder;

/// What this job on this node shows of itself while it runs: to the control socket, to --metrics
/// and on the status line.
///
/// Used on the loop's thread only.
class JobStatus {
 public:
  /// All outlive it: the agent owns them.
  struct Parts {
    boost::asio::io_context& io;
    const JobPlan& plan;
    std::string job_id;
    pid_t guardian = 0;
    const GroupState& group;
    const RoundTerms& terms;
    const WorkerGroup& workers;
    const JobWatch& watch;
    const RunFolder& run_folder;
    const SupervisorTimers& timers;
    OutputHub& output;
    std::function<std::string()> node_name;
  };
  explicit JobStatus(Parts parts);

  [[nodiscard]] control::JobView view(const control::Status& wanted = {});
  /// Of the workers that run and send heartbeats.
  [[nodiscard]] std::vector<WorkerProgress> progress() const;
  /// When this agent began.
  [[nodiscard]] Instant began() const { return began_; }

  [[nodiscard]] StatusLine& line() { return line_; }
  [[nodiscard]] const StatusLine& line() const { return line_; }
  /// Nothing is sampled or drawn any more.
  void close();

 private:
  [[nodiscard]] control::JobView job_view(Instant now) const;
  void add_workers(control::JobView& seen, bool last_lines, Instant now) const;
  void add_gpus(control::JobView& seen);
  [[nodiscard]] std::optional<control::WorkerView::Progress> progress_of(
      const WorkerRecord& record) const;
  [[nodiscard]] StatusFacts line_facts() const;

  Parts parts_;
  GpuWatch gpus_;
  StatusLine line_;
  Instant began_ = clock_now();
};

}  // namespace acc::agent
