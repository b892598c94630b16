#include "agent/coordinated_job.hpp"

#include "common/log.hpp"

#include <boost/asio/post.hpp>

#include <system_error>
#include <utility>

namespace acc::agent {

CoordinatedJob::CoordinatedJob(boost::asio::io_context& io, const JobPlan& plan,
                               const GuardianLink& guardian, std::string host, OnOrder on_order)
    : io_{io},
      plan_{plan},
      guardian_{guardian},
      host_{std::move(host)},
      on_order_{std::move(on_order)},
      node_{choose_node_name(plan_.cluster, host_)} {}

Result<void> CoordinatedJob::begin(std::function<void(const Error&)> cannot_listen,
                                   OnClockSkew on_clock_skew) {
  auto options = rendezvous_options(plan_, host_, node_);
  if (!options) return options.error();
  options->on_clock_skew = std::move(on_clock_skew);
  client_ = std::make_unique<rendezvous::RendezvousClient>(
      io_, std::move(*options), [this](const rendezvous::NodeOrder& order) { on_order(order); });
  client_->begin(std::move(cannot_listen));
  return {};
}

void CoordinatedJob::on_order(const rendezvous::NodeOrder& order) {
  if (const auto* lease = std::get_if<rendezvous::SetLease>(&order))
    return hold_lease(guardian_, lease->end, plan_.cluster.timings.lease);
  // A lease that isn't needed any more lies in the past soon: a frozen agent that thaws right
  // before it starts a worker is then still stopped by it.
  if (std::holds_alternative<rendezvous::ClearLease>(order)) return release_lease(guardian_);
  if (const auto* end = std::get_if<rendezvous::OrderClose>(&order)) {
    close_ = end->close;
    closed_at_ = std::chrono::steady_clock::now();
  }
  on_order_(order);
}

std::optional<std::string> CoordinatedJob::take_lease_timer_warning() {
  if (guardian_.board == nullptr || std::exchange(is_lease_timer_told_, true)) return std::nullopt;
  const auto& board = *guardian_.board;
  if (!board.has_priority) log::info("guardian_has_no_priority", {{"node", node_name()}});
  const int why = board.lease_timer_failed;
  if (why == 0) return std::nullopt;
  return "this machine can't let its kernel end the workers with the lease (" +
         std::generic_category().message(why) +
         "): if all of it is frozen for longer, they may run for a moment when it wakes up";
}

void CoordinatedJob::report(const rendezvous::Failure& failure) {
  if (client_) client_->worker_failed(failure);
}
void CoordinatedJob::report_completed(bool progress) {
  if (client_) client_->workers_completed(progress);
}
void CoordinatedJob::report_stopped(bool progress) {
  if (client_) client_->workers_stopped(progress);
}
void CoordinatedJob::ask_job(int signo) {
  if (client_) client_->signal_received(signo);
}
void CoordinatedJob::ask_restart(rendezvous::RendezvousClient::RestartAnswer answer) {
  if (client_) client_->restart_asked(std::move(answer));
}
void CoordinatedJob::port_reserved(std::uint16_t port) { client_->port_reserved(port); }

void CoordinatedJob::ask(rendezvous::KvRequest request,
                         rendezvous::RendezvousClient::KvAnswer answer) {
  if (client_) client_->ask(std::move(request), std::move(answer));
}

void CoordinatedJob::table(rendezvous::RendezvousClient::TableAnswer answer) {
  if (client_) client_->table(std::move(answer));
}

void CoordinatedJob::leave(const std::string& why, bool keeps_coordinator,
                           std::function<void()> done) {
  if (!client_) return boost::asio::post(io_, std::move(done));
  if (close_) return client_->end(std::move(done));
  client_->leave(why);
  if (!keeps_coordinator) return client_->end(std::move(done));
  resigned_ = [this, done = std::move(done)] { client_->end(done); };
  client_->when_dispensable([this] { resign(); });
}

void CoordinatedJob::resign() {
  if (resigned_) boost::asio::post(io_, std::exchange(resigned_, {}));
}

}  // namespace acc::agent
