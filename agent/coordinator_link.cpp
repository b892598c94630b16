#include "agent/coordinator_link.hpp"

#include "agent/error_lines.hpp"
#include "agent/job_course.hpp"
#include "agent/job_recorder.hpp"
#include "agent/last_lines.hpp"
#include "agent/lost_ranks.hpp"
#include "agent/round_starter.hpp"
#include "agent/round_terms.hpp"
#include "agent/translate.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

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

// Of long lines fewer fit than are shown here: then those that are left out may name the error.
static void add_output(Failure& failure, const FailureReport& report) {
  failure.last_lines = end_of(report.tail);
  const auto sent = 1 + static_cast<std::size_t>(std::ranges::count(failure.last_lines, '\n'));
  failure.error_lines =
      join(sent < kShownLines ? error_lines_before(report.tail, sent) : report.error_lines, "\n");
  failure.error_age = report.error_age;
}

CoordinatorLink::CoordinatorLink(const Parts& parts, Hooks hooks)
    : parts_{parts},
      hooks_{std::move(hooks)},
      job_{parts.io, parts.plan, parts.guardian, host_name(),
           [this](const auto& order) { on_order(order); }},
      stacks_{
          {parts.io, parts.stacks,
           [this](auto request, auto answer) { job_.ask(std::move(request), std::move(answer)); },
           [this](auto answer) { job_.table(std::move(answer)); }, hooks_.on_hang}},
      stalled_{parts.io, [this](auto request,
                                auto answer) { job_.ask(std::move(request), std::move(answer)); }},
      lease_bound_{parts.guardian} {}

void CoordinatorLink::join() {
  const auto end_here = [this](ExitCode code, const std::string& why) {
    hooks_.on_give_up(why);
    hooks_.on_event(JobClosed{{Outcome::nodes_missing, to_int(code)}, clock_now()});
  };
  const auto begun =
      job_.begin([end_here](const Error& error) { end_here(ExitCode::nodes_missing, error.what); },
                 hooks_.on_clock_skew);
  if (!begun) end_here(ExitCode::failure, begun.error().what);
}

void CoordinatorLink::table(std::function<void(std::vector<control::NodeView>)> answer) {
  job_.table([answer = std::move(answer)](const std::vector<rendezvous::TableRow>& rows) {
    std::vector<control::NodeView> table;
    table.reserve(rows.size());
    for (const auto& row : rows) table.push_back({row.node, row.host, row.ranks});
    answer(std::move(table));
  });
}

// ---- orders of the coordinator ----

void CoordinatorLink::on_order(const rendezvous::NodeOrder& order) {
  std::visit([this](const auto& one) { prepare(one); }, order);
  if (const auto event = event_of(order, job_.node_name(), clock_now())) hooks_.on_event(*event);
}

void CoordinatorLink::prepare(const rendezvous::OrderPort& order) {
  job_.port_reserved(parts_.starter.reserve_store_port(order.round));
}

void CoordinatorLink::prepare(const rendezvous::OrderRound& order) {
  if (const auto lacks = job_.take_lease_timer_warning()) parts_.course.note(*lacks, true);
  heed_lease();  // of an older lease, which ended while no worker ran
  parts_.terms.take(order.place);
  parts_.course.round_ordered(order.place);
}

void CoordinatorLink::prepare(const rendezvous::OrderStop& order) {
  hooks_.tell_lost(lost_by(order.stop));
  parts_.course.stop_ordered(order.stop, job_.node_name());
  // Those here may have completed, and only what they left behind is still there.
  note_lost_round(order.stop);
}

void CoordinatorLink::prepare(const rendezvous::StopOfCompleted& order) {
  note_lost_round(order.stop);
}

void CoordinatorLink::note_lost_round(const rendezvous::Stop& stop) {
  if (stop.why == rendezvous::Stop::Why::end) return;
  hooks_.on_round_lost(clock_now() - (stop.failure ? stop.failure->ago : Millis{0}));
}

void CoordinatorLink::prepare(const rendezvous::OrderKill& order) {
  parts_.course.note("killing the workers here: " + order.why, true);
}

void CoordinatorLink::prepare(const rendezvous::GiveUp& order) { hooks_.on_give_up(order.text); }

void CoordinatorLink::prepare(const rendezvous::Tell& order) {
  if (order.is_coordinator_here) hooks_.on_coordinator_here(*order.is_coordinator_here);
  if (!order.text.empty()) parts_.course.note(order.text, order.is_warning);
}

void CoordinatorLink::heed_lease() {
  if (take_lease_end(parts_.guardian)) hooks_.on_lease_over(LeaseOver{clock_now()});
}

// ---- the course of a round ----

void CoordinatorLink::round_started() {
  if (!parts_.terms.place()) return;
  stacks_.round_started(parts_.terms.node_rank(), parts_.terms.nodes());
  stalled_.round_started(parts_.terms.node_rank(), parts_.terms.nodes());
}

// Other nodes may go on without this one's workers, or wait for them.
void CoordinatorLink::round_ended(const std::vector<WorkerRecord>& workers) {
  evidence::NodeEvidence mine{.node = job_.node_name(), .ranks = {}, .tools = {}};
  mine.finished = finished_ranks(workers, clock_now());
  const bool is_completed = mine.finished.size() == workers.size();
  stalled_.round_ended(is_completed && parts_.plan.hang.stall_restarts);
  if (!is_completed) return stacks_.round_ended();
  stacks_.round_completed(std::move(mine));
}

void CoordinatorLink::collect_stacks(const evidence::Question& question,
                                     StackCollection::Collected done) {
  if (parts_.terms.nodes() > 1) return stacks_.collect(question, std::move(done));
  parts_.stacks.collect({.question = question}, std::move(done));
}

void CoordinatorLink::compare(const evidence::NodeEvidence& mine,
                              std::function<void(StackCollection::Evidence)> done) {
  stacks_.compare(mine, std::move(done));
}

void CoordinatorLink::tell_stalled(std::function<void()> on_all) {
  on_all ? stalled_.stalled(std::move(on_all)) : stalled_.go_on();
}

void CoordinatorLink::count_section_signs(std::int64_t more,
                                          std::function<void(SectionSigns::Count)> done) {
  constexpr Millis kPatience{1'000};
  const auto timer = std::make_shared<boost::asio::steady_timer>(parts_.io, kPatience);
  const auto waiting = std::make_shared<std::function<void(SectionSigns::Count)>>(std::move(done));
  const auto answer = [timer, waiting](SectionSigns::Count count) {
    timer->cancel();
    if (const auto tell = std::exchange(*waiting, nullptr)) tell(count);
  };
  timer->async_wait([answer](boost::system::error_code cancelled) {
    if (!cancelled) answer(std::nullopt);
  });
  rendezvous::KvRequest add;
  add.op = rendezvous::KvRequest::Op::add;
  add.key = "acc/sections";
  add.delta = more;
  job_.ask(std::move(add), [answer](const rendezvous::KvReply& reply) {
    const bool is_known = reply.status == rendezvous::KvReply::Status::ok;
    answer(is_known ? SectionSigns::Count{reply.number} : std::nullopt);
  });
}

void CoordinatorLink::exchange_step(std::string expected, std::string value,
                                    SharedStep::Answer done) {
  using Status = rendezvous::KvReply::Status;
  rendezvous::KvRequest request;
  request.op = rendezvous::KvRequest::Op::compare_set;
  request.key = "acc/longest_step";
  request.expected = std::move(expected);
  request.value = value;
  const auto answer = [value = std::move(value),
                       done = std::move(done)](const rendezvous::KvReply& reply) {
    if (reply.status == Status::ok) return done(value);
    if (reply.status == Status::differs) return done(reply.value);
    done(reply.status == Status::missing ? std::optional<std::string>{""} : std::nullopt);
  };
  job_.ask(std::move(request), answer);
}

// ---- reports ----

NodeFacts CoordinatorLink::node_facts() const {
  const auto& place = parts_.terms.place();
  return {place ? place->ranks : RankRange{}, host_name()};
}

void CoordinatorLink::report(const ReportFailed& a) {
  const auto report = parts_.recorder.describe(a.failure);
  Failure failure = failure_of(a.failure, node_facts(), clock_now());
  failure.cause = report.cause;
  if (report.error) {
    failure.error = report.error->message;
    failure.traceback = end_of(report.error->traceback);
  }
  add_output(failure, report);
  failure.into_round = report.into_round;
  failure.log_path = report.log_path;
  failure.stacks_path = report.stacks_path;
  failure.no_restart = parts_.course.no_restart_reason(a.failure.local_rank);
  failure.hint = parts_.course.hint_for(report, host_name());
  failure.pid = report.worker.pid;
  failure.out_of_memory = report.out_of_memory;
  job_.report(failure);
}

void CoordinatorLink::report(const ReportStartFailed& a) {
  Failure failure = failure_of(a.failure, node_facts());
  failure.cause = parts_.course.words_for(a.failure);
  job_.report(failure);
}

void CoordinatorLink::report(const ReportCompleted& a) { job_.report_completed(a.progress); }
void CoordinatorLink::report(const ReportUnkillable&) {
  job_.report(unkillable_failure(node_facts()));
}
void CoordinatorLink::report(const AskJob& a) { job_.ask_job(a.signo); }

}  // namespace acc::agent
