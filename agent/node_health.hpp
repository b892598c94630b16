#pragma once

#include "agent/group_state.hpp"
#include "agent/health_check.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

struct GuardianLink;

/// When the health of this node is checked (before each round, with --health_interval also while
/// workers run), and what is known of it. What follows is the agent's decision.
///
/// Used on the loop's thread only. The io_context, the plan and the state outlive it.
class NodeHealth {
 public:
  struct Hooks {
    /// @param is_shown  to the user; otherwise only an event
    std::function<void(const health::Finding&, bool is_shown)> on_finding;
    /// A check while workers run found this node of several unfit.
    std::function<void(const std::string& why)> on_unfit;
  };
  NodeHealth(boost::asio::io_context& io, const JobPlan& plan, const GuardianLink& guardian,
             const GroupState& group, Hooks hooks);

  /// @param done  why this node is unfit; empty: it is fit, or isn't checked (then it is called at
  /// once)
  void check_before_round(std::function<void(const std::string& why)> done);
  /// The round won't be: its check is given up.
  void cancel();
  void round_started();
  /// How far this machine's clock is ahead of the coordinator's: more than --clock_skew.
  void note_clock_skew(Millis ahead);
  /// Checks no more.
  void close();

  /// Without one there are no findings to show.
  [[nodiscard]] bool is_known() const { return check_ || clock_; }
  /// Of the last check, and of the clock.
  [[nodiscard]] std::vector<health::Finding> findings() const;

 private:
  void tell(const std::vector<health::Finding>& news);
  void check_at_interval();

  const GroupState& group_;
  Hooks hooks_;
  Millis interval_;
  std::unique_ptr<HealthCheck> check_;  ///< --health
  boost::asio::steady_timer timer_;
  std::optional<health::Finding> clock_;  ///< that it differs from the coordinator's
};

}  // namespace acc::agent
