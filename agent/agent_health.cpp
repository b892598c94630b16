#include "agent/agent_loop.hpp"
#include "agent/coordinated_job.hpp"
#include "common/exit_codes.hpp"

// The health of this node: checked before each round, and with --health_interval while workers run.
namespace acc::agent {

void AgentLoop::open_health() {
  if (!plan_.health.before_rounds || guardian_.pid == 0) return;
  const bool has_other_nodes = plan_.kind == JobKind::elastic && plan_.cluster.several();
  health_ = std::make_unique<HealthCheck>(
      io_, plan_.health, has_other_nodes, probes_of(plan_),
      HealthCheck::Hooks{[this](const std::vector<health::Finding>& news) {
        for (const auto& one : news) {
          events_.health(one);
          // What makes the node leave is told with the leaving. Alone, it has nobody to leave to:
          // its workers go on as long as they can.
          const bool stays = !job_ && group_.phase == Phase::running;
          if (stays || one.severity == health::Severity::warning)
            messages_.warning("health of this node: " + one.words);
        }
      }});
}

// On several nodes the check is over by now: a node that has a place and doesn't start costs all
// the others a round.
void AgentLoop::act(const StartRound& a) {
  if (!health_ || job_) return begin_round(a);
  health_->check(true, [this, a](const std::string& why) {
    if (why.empty()) return begin_round(a);
    on_started(
        StartFailure{LocalRank{0}, kUnfitNode, "health check", "this node is unfit: " + why});
  });
}

// The round is over, and the node offers itself for the next one. Unfit, it leaves instead: then
// the coordinator gives its place to a spare.
void AgentLoop::report_stopped(const ReportStopped& a) {
  const bool is_ending = group_.stop_signal != 0 || group_.closed || group_.lease_over ||
                         (group_.stop_ordered && group_.stop_ordered->for_good);
  if (health_ && is_ending) health_->cancel();
  if (!health_ || is_ending) return job_->report_stopped(a.progress);
  health_->check(true, [this, progress = a.progress](const std::string& why) {
    why.empty() ? job_->report_stopped(progress) : leave_unfit(why);
  });
}

void AgentLoop::check_at_interval() {
  if (!health_ || plan_.health.interval <= Millis{0}) return;
  health_timer_.expires_after(plan_.health.interval);
  health_timer_.async_wait([this](boost::system::error_code cancelled) {
    if (cancelled || finish_ || !health_) return;
    check_at_interval();
    if (group_.phase != Phase::running || health_->is_checking()) return;
    health_->check(false, [this](const std::string& why) {
      if (job_ && !why.empty() && group_.phase == Phase::running) leave_unfit(why);
    });
  });
}

void AgentLoop::leave_unfit(const std::string& why) {
  end_reason_ = "this node is unfit: " + why;
  messages_.warning(end_reason_ + "; it leaves the job");
  handle(JobClosed{{Outcome::unfit, to_int(ExitCode::unfit)}, clock_now()});
  check_emptied();
}

// Whatever --health says: the figure costs nothing, and no decision here depends on wall clocks.
void AgentLoop::note_clock_skew(Millis ahead) {
  const auto far = describe(ahead < Millis{0} ? -ahead : ahead);
  clock_ = health::Finding{"clock", "", health::Severity::warning,
                           "its clock is " + far + (ahead < Millis{0} ? " behind" : " ahead of") +
                               " the coordinator's, so that times in logs and events of the nodes "
                               "can't be compared: is NTP running? (--clock_skew)"};
  events_.health(*clock_);
  messages_.warning("health of this node: " + clock_->words);
}

}  // namespace acc::agent
