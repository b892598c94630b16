#include "agent/agent_loop.hpp"
#include "agent/control_server.hpp"
#include "agent/lost_ranks.hpp"
#include "agent/metrics_server.hpp"
#include "agent/translate.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <memory>
#include <utility>

// What a job on several nodes adds: orders of the coordinator, and reports to it.
namespace acc::agent {

using rendezvous::Failure;

// As much as a message takes.
static std::string end_of(const std::string& text) {
  constexpr std::size_t kLines = 40;
  std::string end = join(last_lines(text, kLines), "\n");
  if (end.size() <= rendezvous::kMaxText) return end;
  end.erase(0, end.size() - rendezvous::kMaxText);
  return end.substr(end.find('\n') + 1);
}

void AgentLoop::begin_job() {
  const bool has_other_nodes = plan_.kind == JobKind::elastic && plan_.cluster.several();
  open_health();
  if (has_other_nodes) join_job();
  open_events();
  open_metrics();
  open_status();
  if (!has_other_nodes) handle(Began{clock_now()});
}

// A compiled program needs no time before it can report its own error.
static bool is_interpreter(const std::string& program) {
  const auto name = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with("python") || name.starts_with("pypy");
}

void AgentLoop::join_job() {
  constexpr Millis kStartupGrace{500};
  group_.coordinated = true;
  if (is_interpreter(plan_.command.front())) group_.startup_grace = kStartupGrace;
  if (guardian_.board != nullptr) workers_.spawner().heed_lease(&guardian_.board->lease_ends_ns);
  job_ = std::make_unique<CoordinatedJob>(io_, plan_, guardian_, host_name(),
                                          [this](const auto& order) { on_order(order); });
  if (!health_) return join_nodes();
  // Before it takes a place: a spare needs none of this node's time.
  health_->check(true,
                 [this](const std::string& why) { why.empty() ? join_nodes() : leave_unfit(why); });
}

void AgentLoop::join_nodes() {
  const auto end_here = [this](ExitCode code, const std::string& why) {
    end_reason_ = why;
    handle(JobClosed{{Outcome::nodes_missing, to_int(code)}, clock_now()});
  };
  const auto begun = job_->begin(
      [end_here](const Error& error) { end_here(ExitCode::nodes_missing, error.what); });
  if (!begun) end_here(ExitCode::failure, begun.error().what);
}

// ---- orders of the coordinator ----

void AgentLoop::on_order(const rendezvous::NodeOrder& order) {
  std::visit([this](const auto& one) { prepare(one); }, order);
  const auto event = event_of(order, clock_now());
  if (!event) return;
  handle(*event);
  check_emptied();
}

void AgentLoop::prepare(const rendezvous::OrderPort& order) {
  job_->port_reserved(starter_.reserve_store_port(order.round));
}

void AgentLoop::prepare(const rendezvous::OrderRound& order) {
  const auto& place = order.place;
  if (const auto lacks = job_->take_lease_timer_warning()) prepare(rendezvous::Tell{*lacks, true});
  heed_lease();  // of an older lease, which ended while no worker ran
  place_ = Assignment{
      place.epoch.round, place.node_rank,
      place.nodes,       {place.first_rank, plan_.local_world_size},
      place.world_size,  {place.master.host, place.master.port, plan_.master.port_is_given}};
  max_restarts_ = place.max_restarts;
  restart_reason_ = place.reason;
  if (place.ledger.restarts == 0) return;
  events_.restarting(place.ledger.restarts, place.max_restarts, Millis{0}, place.reason);
  messages_.announce("attempt " + std::to_string(place.epoch.round.value()) + ": " +
                     std::to_string(place.nodes) + (place.nodes == 1 ? " node" : " nodes") + ", " +
                     restart_words(place.ledger, place.max_restarts) + " after: " + place.reason);
}

void AgentLoop::prepare(const rendezvous::OrderStop& order) {
  events_.stop_ordered(order.stop.by, order.stop.reason);
  if (services_) services_->tell_lost(lost_by(order.stop));
  if (order.stop.by != job_->node_name())
    prepare(rendezvous::Tell{"stopping the workers here: " + order.stop.reason});
}

void AgentLoop::prepare(const rendezvous::OrderKill& order) {
  prepare(rendezvous::Tell{"killing the workers here: " + order.why, true});
}

void AgentLoop::prepare(const rendezvous::GiveUp& order) { end_reason_ = order.text; }

void AgentLoop::prepare(const rendezvous::Tell& order) {
  order.is_warning ? messages_.warning(order.text) : messages_.note(order.text);
  service_.status(order.text);
}

// The guardian may have ended the lease before our own clock did: its victims are no failures.
void AgentLoop::heed_lease() {
  if (job_ && take_lease_end(guardian_)) handle(LeaseOver{clock_now()});
}

void AgentLoop::end_loop() {
  if (services_) services_->close();
  health_.reset();
  health_timer_.cancel();
  if (control_) control_->close();
  metrics_server_.reset();
  if (!job_) return io_.stop();
  job_->leave(leave_words(finish_->end.outcome, end_reason_), [this] { io_.stop(); });
}

// ---- stacks and hangs ----

std::function<void(const evidence::NodeEvidence&, std::function<void(JobWatch::Evidence)>)>
AgentLoop::comparing_nodes() {
  if (plan_.kind != JobKind::elastic || !plan_.cluster.several()) return {};
  return [this](const auto& mine, auto done) { node_stacks_.compare(mine, std::move(done)); };
}

void AgentLoop::collect_stacks(const std::string& why, JobWatch::Collected done) {
  if (job_ && place_ && place_->nodes > 1) return node_stacks_.collect(why, std::move(done));
  watch_.collect(why, JobWatch::kCollectTime, std::move(done));
}

// ---- reports ----

NodeFacts AgentLoop::node_facts() const {
  return {place_ ? place_->ranks : RankRange{}, host_name()};
}

void AgentLoop::act(const ReportFailed& a) {
  const auto report = recorder_.describe(a.failure);
  Failure failure = failure_of(a.failure, node_facts(), clock_now());
  failure.cause = report.cause;
  if (report.error) {
    failure.error = report.error->message;
    failure.traceback = end_of(report.error->traceback);
  }
  failure.last_lines = end_of(report.tail);
  failure.into_round = report.into_round;
  failure.log_path = report.log_path;
  failure.pid = report.worker.pid;
  failure.out_of_memory = report.out_of_memory;
  job_->report(failure);
}

void AgentLoop::act(const ReportStartFailed& a) {
  Failure failure = failure_of(a.failure, node_facts());
  failure.cause = words_for(a.failure);
  job_->report(failure);
}

void AgentLoop::act(const ReportCompleted&) { job_->report_completed(); }
void AgentLoop::act(const ReportStopped& a) { report_stopped(a); }

void AgentLoop::act(const ReportUnkillable&) { job_->report(unkillable_failure(node_facts())); }
void AgentLoop::act(const AskJob& a) { job_->ask_job(a.signo); }
void AgentLoop::act(const AskRestart&) {
  job_->ask_restart(std::exchange(restart_answer_, nullptr));
}

// Called before the supervisor handles the exit, so that the other workers know why they are
// stopped.
void AgentLoop::tell_workers_of(const WorkerRecord& record) {
  if (is_success(*record.status) || record.asked_to_end) return;
  services_->tell_lost({lost_here(record, recorder_.oom_facts(*record.status))});
}

}  // namespace acc::agent
