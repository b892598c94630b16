#pragma once

#include "agent/guardian.hpp"
#include "agent/job_plan.hpp"
#include "agent/supervisor.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/party.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::agent {

/// This node's seat in a job on several nodes: orders of the coordinator become events of the
/// supervisor, its reports go to the coordinator.
class Seat {
 public:
  struct Hooks {
    std::function<void(const Event&)> handle;  ///< to the supervisor
    std::function<void(const std::string& text, bool is_warning)> tell;
    /// Free for rank 0's store in this round; held by the callee.
    std::function<std::uint16_t(Round)> reserve_port;
    /// Before RoundOrdered.
    std::function<void(const rendezvous::RoundPlace&)> take_place;
    /// Before StopOrdered: what the workers are to know.
    std::function<void(const rendezvous::Stop&)> tell_workers;
  };

  Seat(boost::asio::io_context& io, const JobPlan& plan, const GuardianLink& guardian,
       std::string host, Hooks hooks);
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  /// Loads the secret and begins to look for the others. What can't work ends the job by an event.
  void begin();

  // ---- the supervisor's reports ----
  void report(rendezvous::Failure failure) {
    with_party([&](auto& p) { p.worker_failed(failure); });
  }
  void report_completed();
  void report_stopped(bool progress);
  void ask_job(int signo, std::uint32_t interrupts);
  void set_alive(std::uint32_t workers) {
    with_party([&](auto& p) { p.set_alive(workers); });
  }

  /// The guardian may have ended the lease before our own clock did: its victims are no failures.
  void heed_guardian();

  void ask(rendezvous::KvRequest request, rendezvous::Party::KvAnswer answer);
  void table(rendezvous::Party::TableAnswer answer);

  /// This node is through with the job. `done`: all others that must know do.
  void leave(const std::string& why, std::function<void()> done);

  [[nodiscard]] const std::optional<rendezvous::Close>& close() const { return close_; }
  [[nodiscard]] Instant closed_at() const { return closed_at_; }
  /// Why this node ended without the others; empty: it didn't.
  [[nodiscard]] const std::string& end_reason() const { return end_reason_; }
  [[nodiscard]] const std::string& node_name() const {
    return party_ ? party_->node_name() : node_name_;
  }

 private:
  template <class Call>
  void with_party(Call call) {
    if (party_) call(*party_);
  }
  [[nodiscard]] rendezvous::PartyHooks party_hooks();
  Result<rendezvous::PartyOptions> party_options();
  Result<void> load_keys(rendezvous::PartyOptions& options) const;
  void choose_name();
  void tell_lease_timer();
  void stop_workers(const rendezvous::Stop& stop);
  void consider_end_alone();
  void end(Verdict verdict, int exit_code, std::string reason);

  boost::asio::io_context& io_;
  const JobPlan& plan_;  // the agent owns it and us
  GuardianLink guardian_;
  std::string host_;
  Hooks hooks_;
  std::string node_name_;
  std::string other_name_;  ///< if another machine has that name
  UniqueFd name_reservation_;
  Instant round_began_{};
  bool has_workers_ = false;
  bool told_lease_timer_ = false;
  /// A signal came that ends the job, and there was nobody to tell.
  std::optional<int> unheard_signal_;
  boost::asio::steady_timer farewell_;
  boost::asio::steady_timer newborn_;  ///< holds back an order to stop
  std::unique_ptr<rendezvous::Party> party_;
  std::optional<rendezvous::Close> close_;
  Instant closed_at_{};
  std::string end_reason_;
  bool is_over_ = false;
};

}  // namespace acc::agent
