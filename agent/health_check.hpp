#pragma once

#include "agent/health_prober.hpp"
#include "agent/job_plan.hpp"
#include "common/alive.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace acc::agent {

/// Checks the health of this node: starts a prober, waits for it for a bounded time, and judges
/// what it found. The prober is a child of the guardian, not of the agent: a round is over when the
/// agent has no child left, and a probe that hangs in the kernel must not delay that.
///
/// Used on the loop's thread only. The io_context outlives it.
class HealthCheck {
 public:
  struct Hooks {
    /// Findings that the last check didn't have.
    std::function<void(const std::vector<health::Finding>&)> on_news;
  };
  /// @param folders  of the job, besides those of the plan
  HealthCheck(boost::asio::io_context& io, const HealthPlan& plan, bool has_other_nodes,
              std::vector<health::Probe> probes, Hooks hooks);
  ~HealthCheck();
  HealthCheck(const HealthCheck&) = delete;
  HealthCheck& operator=(const HealthCheck&) = delete;

  /// Begins a check; one that is under way is given up, and its `done` is not called.
  /// @param done  why this node is unfit; empty: it is fit
  void check(bool is_before_round, std::function<void(const std::string&)> done);
  /// Gives up a check that is under way.
  void cancel();
  [[nodiscard]] bool is_checking() const { return static_cast<bool>(done_); }
  /// Of the last check.
  [[nodiscard]] const std::vector<health::Finding>& findings() const { return findings_; }

 private:
  [[nodiscard]] health::ProbeRequest request_now() const;
  bool start(const health::ProbeRequest& request);
  void read_on();
  void finish(std::vector<health::ProbeRun> runs);
  void forget_prober(int signo);

  const HealthPlan plan_;
  const bool has_other_nodes_;
  const std::vector<health::Probe> probes_;
  const Hooks hooks_;
  const std::int64_t began_us_;  ///< on the kernel log's clock
  boost::asio::posix::stream_descriptor out_;
  boost::asio::steady_timer deadline_;
  UniqueFd prober_;  ///< pidfd
  std::string text_;
  std::array<char, 4096> bytes_{};
  bool is_before_round_ = true;
  std::function<void(const std::string&)> done_;
  health::Baseline baseline_;
  bool has_baseline_ = false;
  std::map<std::pair<std::string, std::string>, Instant> skip_until_;  ///< probes that hung
  std::vector<health::Finding> findings_;
  std::uint64_t number_ = 0;  ///< of the check: handlers of an older one do nothing
  Alive alive_;
};

/// What is probed for this job: folders of logs and checkpoints, the user's own command, and what
/// every node has.
[[nodiscard]] std::vector<health::Probe> probes_of(const JobPlan& plan);

}  // namespace acc::agent
