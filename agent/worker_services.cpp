#include "agent/worker_services.hpp"

#include "agent/pmi_session.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"

#include <utility>

namespace acc::agent {

WorkerServices::WorkerServices(boost::asio::io_context& io, const JobPlan& plan, std::string job_id,
                               CoordinatedJob* job, const UserMessages& messages,
                               PmiServer::OnAbort on_abort)
    : io_{io},
      plan_{plan},
      job_id_{std::move(job_id)},
      job_{job},
      messages_{messages},
      store_{job == nullptr ? std::make_unique<LocalStore>(io, plan.local_world_size) : nullptr},
      server_{io, calls()} {
  if (plan_.pmi) pmi_ = std::make_unique<PmiServer>(io_, calls(), std::move(on_abort));
  const auto listening = server_.listen();
  if (listening.has_error()) messages_.warning(listening.error().what);
}

void WorkerServices::begin_round(Round round, RankRange ranks, WorldSize world) {
  asked_not_to_restart_.clear();
  if (store_) store_->begin_round(round);
  server_.begin_round(round, ranks);
  heartbeats_.begin_round(round, ranks.count);
  if (pmi_) pmi_->begin_round(pmi::space_name(job_id_, round), ranks.first, world);
}

void WorkerServices::close() {
  server_.close();
  if (pmi_) pmi_->close();
}

WorkerCalls WorkerServices::calls() {
  WorkerCalls calls;
  if (job_ != nullptr) {
    calls.on_kv = [this](std::uint64_t, rendezvous::KvRequest request,
                         WorkerCalls::KvAnswer answer) {
      job_->ask(std::move(request), std::move(answer));
    };
    calls.on_table = [this](WorkerCalls::TableAnswer answer) { job_->table(std::move(answer)); };
    calls.on_gone = [](std::uint64_t) {};
  } else {
    calls.on_kv = [this](std::uint64_t connection, rendezvous::KvRequest request,
                         WorkerCalls::KvAnswer answer) {
      store_->ask(connection, std::move(request), std::move(answer));
    };
    calls.on_table = [this](const WorkerCalls::TableAnswer& answer) {
      answer({{host_name(), host_name(), "127.0.0.1", {plan_.first_rank, plan_.local_world_size}}});
    };
    calls.on_gone = [this](std::uint64_t connection) { store_->gone(connection); };
  }
  calls.on_beat = [this](LocalRank rank, std::uint64_t step, Instant) {
    heartbeats_.on_beat(rank, step);
  };
  calls.on_section = [this](LocalRank rank, const std::string& name, Millis limit) {
    heartbeats_.on_section(rank, name, limit);
  };
  calls.on_checkpoint = [this](LocalRank rank, std::uint64_t step) {
    heartbeats_.on_checkpoint(rank, step);
    log::info("checkpoint", {{"job", job_id_}, {"local_rank", rank.value()}, {"step", step}});
  };
  calls.on_no_restart = [this](LocalRank rank, const std::string& why) {
    asked_not_to_restart_[rank] = why.empty() ? "it gave no reason" : why;
    messages_.note("local rank " + std::to_string(rank.value()) +
                   " asks not to be restarted: " + why);
  };
  return calls;
}

}  // namespace acc::agent
