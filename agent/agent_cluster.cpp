#include "agent/agent_loop.hpp"
#include "agent/local_store.hpp"
#include "agent/lost_ranks.hpp"
#include "agent/pmi_server.hpp"
#include "agent/seat.hpp"
#include "agent/worker_server.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <unistd.h>

// What a job on several nodes adds: the seat in it, and the workers' questions.
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
  if (plan_.kind == JobKind::elastic && plan_.cluster.several()) return take_seat();
  handle(Began{std::chrono::steady_clock::now()});
}

void AgentLoop::take_seat() {
  group_.coordinated = true;
  Seat::Hooks hooks;
  hooks.handle = [this](const Event& event) {
    handle(event);
    check_emptied();
  };
  hooks.tell = [this](const std::string& text, bool is_warning) {
    is_warning ? narrator_.warning(text) : narrator_.note(text);
    service_.status(text);
  };
  hooks.reserve_port = [this](Round round) { return reserve_store_port(round); };
  hooks.take_place = [this](const rendezvous::RoundPlace& place) { take_place(place); };
  hooks.tell_workers = [this](const rendezvous::Stop& stop) {
    if (worker_server_) worker_server_->tell_lost(lost_by(stop));
  };
  if (guardian_.board != nullptr) workers_.spawner().heed_lease(&guardian_.board->lease_ends_ns);
  seat_ = std::make_unique<Seat>(io_, plan_, guardian_, host_name(), std::move(hooks));
  seat_->begin();
}

void AgentLoop::take_place(const rendezvous::RoundPlace& place) {
  place_ = Assignment{
      place.epoch.round, place.node_rank,
      place.nodes,       place.first_rank,
      place.world_size,  {place.master.host, place.master.port, plan_.master.port_is_given}};
  plan_.world_size = place.world_size;  // for the report
  restart_reason_ = place.reason;
  if (place.ledger.restarts == 0) return;
  narrator_.announce("attempt " + std::to_string(place.epoch.round.value()) + ": " +
                     std::to_string(place.nodes) + (place.nodes == 1 ? " node" : " nodes") +
                     ", restart " + std::to_string(place.ledger.restarts) + " of " +
                     std::to_string(plan_.restart.max_restarts) + " after: " + place.reason);
}

void AgentLoop::heed_lease() {
  if (seat_) seat_->heed_guardian();
}

void AgentLoop::end_loop() {
  if (worker_server_) worker_server_->close();
  if (pmi_server_) pmi_server_->close();
  if (!seat_) return io_.stop();
  const bool is_orphan = finish_->verdict == Verdict::guardian_lost;
  seat_->leave(is_orphan ? "its acc-launch was killed" : std::string{to_string(finish_->verdict)},
               [this] { io_.stop(); });
}

// ---- reports ----

void AgentLoop::act(const ReportFailed& a) {
  const auto report = describe_failure(a.failure);
  Failure failure;
  if (const auto* killed = std::get_if<Signaled>(&a.failure.status)) {
    failure.kind = Failure::Kind::signaled;
    failure.code = killed->signo;
  } else {
    failure.code = std::get<Exited>(a.failure.status).code;
  }
  failure.rank = report.worker.rank;
  failure.local_rank = a.failure.local_rank;
  failure.host = host_name();
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
  failure.is_final = a.failure.is_final;
  failure.ago =
      std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - a.failure.when);
  seat_->report(std::move(failure));
}

void AgentLoop::act(const ReportStartFailed& a) {
  Failure failure;
  failure.kind = Failure::Kind::cannot_start;
  failure.code = a.failure.errnum;
  failure.local_rank = a.failure.local_rank;
  failure.rank = Rank{(place_ ? place_->first_rank.value() : 0) + a.failure.local_rank.value()};
  failure.host = host_name();
  failure.cause = words_for(a.failure);
  seat_->report(std::move(failure));
}

void AgentLoop::act(const ReportCompleted&) { seat_->report_completed(); }
void AgentLoop::act(const ReportStopped& a) { seat_->report_stopped(a.progress); }

void AgentLoop::act(const ReportUnkillable&) {
  Failure failure;
  failure.kind = Failure::Kind::unkillable;
  failure.rank = place_ ? place_->first_rank : Rank{0};
  failure.host = host_name();
  failure.cause = "processes survived SIGKILL; this node needs attention";
  seat_->report(std::move(failure));
}

void AgentLoop::act(const AskJob& a) { seat_->ask_job(a.signo, a.interrupts); }

// ---- what workers are told, and ask ----

// Before the supervisor hears of it: the others know why they are asked to end.
void AgentLoop::tell_workers_of(const WorkerRecord& record) {
  if (!worker_server_ || is_success(*record.status) || record.asked_to_end) return;
  worker_server_->tell_lost({lost_here(record, oom_facts(*record.status))});
}

WorkerCalls AgentLoop::worker_calls() {
  WorkerCalls calls;
  if (seat_) {
    calls.on_kv = [this](std::uint64_t, rendezvous::KvRequest request,
                         WorkerCalls::KvAnswer answer) {
      seat_->ask(std::move(request), std::move(answer));
    };
    calls.on_table = [this](WorkerCalls::TableAnswer answer) { seat_->table(std::move(answer)); };
    calls.on_gone = [](std::uint64_t) {};
  } else {
    calls.on_kv = [this](std::uint64_t connection, rendezvous::KvRequest request,
                         WorkerCalls::KvAnswer answer) {
      local_store_->ask(connection, std::move(request), std::move(answer));
    };
    calls.on_table = [this](const WorkerCalls::TableAnswer& answer) {
      answer({{host_name(), host_name(), "127.0.0.1", plan_.first_rank, plan_.local_world_size}});
    };
    calls.on_gone = [this](std::uint64_t connection) { local_store_->gone(connection); };
  }
  calls.on_beat = [](LocalRank, std::uint64_t, Instant) {};
  calls.on_checkpoint = [this](LocalRank rank, std::uint64_t step) {
    log::info("checkpoint", {{"job", job_id_}, {"local_rank", rank.value()}, {"step", step}});
  };
  calls.on_no_restart = [this](LocalRank rank, const std::string& why) {
    asked_not_to_restart_.insert(rank);
    narrator_.note("local rank " + std::to_string(rank.value()) +
                   " asks not to be restarted: " + why);
  };
  return calls;
}

void AgentLoop::listen_to_workers() {
  if (worker_server_) return;
  if (!seat_) local_store_ = std::make_unique<LocalStore>(io_, plan_.local_world_size);
  if (plan_.pmi) {
    pmi_server_ = std::make_unique<PmiServer>(
        io_, worker_calls(), [this](Rank rank, int code) { workers_.abort(rank, code); });
  }
  worker_server_ = std::make_unique<WorkerServer>(io_, worker_calls());
  const auto listening = worker_server_->listen();
  if (listening.has_error()) narrator_.warning(listening.error().what);
}

}  // namespace acc::agent
