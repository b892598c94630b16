#include "agent/node_health.hpp"

#include "agent/guardian_board.hpp"

#include <utility>

namespace acc::agent {

NodeHealth::NodeHealth(boost::asio::io_context& io, const JobPlan& plan,
                       const GuardianLink& guardian, const GroupState& group, Hooks hooks)
    : group_{group}, hooks_{std::move(hooks)}, interval_{plan.health.interval}, timer_{io} {
  if (!plan.health.before_rounds || guardian.pid == 0) return;
  const bool has_other_nodes = plan.kind == JobKind::elastic && plan.cluster.several();
  check_ =
      std::make_unique<HealthCheck>(io, plan.health, has_other_nodes, probes_of(plan),
                                    HealthCheck::Hooks{[this](const auto& news) { tell(news); }});
}

// What makes the node leave is shown with the leaving. Alone, it has no other node to leave to: its
// workers go on as long as they can.
void NodeHealth::tell(const std::vector<health::Finding>& news) {
  for (const auto& one : news) {
    const bool stays = !group_.coordinated && group_.phase == Phase::running;
    hooks_.on_finding(one, stays || one.severity == health::Severity::warning);
  }
}

void NodeHealth::check_before_round(std::function<void(const std::string&)> done) {
  if (!check_) return done({});
  check_->check(true, std::move(done));
}

void NodeHealth::cancel() {
  if (check_) check_->cancel();
}

void NodeHealth::round_started() { check_at_interval(); }

void NodeHealth::check_at_interval() {
  if (!check_ || interval_ <= Millis{0}) return;
  timer_.expires_after(interval_);
  timer_.async_wait([this](boost::system::error_code cancelled) {
    if (cancelled || !check_) return;
    check_at_interval();
    if (group_.phase != Phase::running || check_->is_checking()) return;
    check_->check(false, [this](const std::string& why) {
      if (group_.coordinated && !why.empty() && group_.phase == Phase::running)
        hooks_.on_unfit(why);
    });
  });
}

// Whatever --health says: the figure costs nothing, and no decision here depends on wall clocks.
void NodeHealth::note_clock_skew(Millis ahead) {
  const auto far = describe(ahead < Millis{0} ? -ahead : ahead);
  clock_ = health::Finding{"clock", "", health::Severity::warning,
                           "its clock is " + far + (ahead < Millis{0} ? " behind" : " ahead of") +
                               " the coordinator's, so that times in logs and events of the nodes "
                               "can't be compared: is NTP running? (--clock_skew)"};
  hooks_.on_finding(*clock_, true);
}

void NodeHealth::close() {
  check_.reset();
  timer_.cancel();
}

std::vector<health::Finding> NodeHealth::findings() const {
  std::vector<health::Finding> all;
  if (check_) all = check_->findings();
  if (clock_) all.push_back(*clock_);
  return all;
}

}  // namespace acc::agent
