#pragma once

#include "agent/guardian_board.hpp"
#include "agent/job_plan.hpp"
#include "agent/rendezvous_options.hpp"
#include "rendezvous/rendezvous_client.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::agent {

/// This node's membership in a job on several nodes: owns the connection to the coordinator, keeps
/// the guardian's lease, and remembers how the job ended. The orders themselves go on to the agent.
class CoordinatedJob {
 public:
  using OnOrder = std::function<void(const rendezvous::NodeOrder&)>;
  /// How far this machine's clock is ahead of the coordinator's.
  using OnClockSkew = std::function<void(Millis)>;

  CoordinatedJob(boost::asio::io_context& io, const JobPlan& plan, const GuardianLink& guardian,
                 std::string host, OnOrder on_order);
  CoordinatedJob(const CoordinatedJob&) = delete;
  CoordinatedJob& operator=(const CoordinatedJob&) = delete;

  /// Loads the secret and begins to look for the other nodes. A configuration that can't work ends
  /// this node by a GiveUp or by the returned error.
  Result<void> begin(std::function<void(const Error&)> cannot_listen, OnClockSkew on_clock_skew);

  // ---- the supervisor's reports ----
  void report(const rendezvous::Failure& failure);
  void report_completed(bool progress);
  void report_stopped(bool progress);
  void ask_job(int signo);
  void ask_restart(rendezvous::RendezvousClient::RestartAnswer answer);
  void port_reserved(std::uint16_t port);

  void ask(rendezvous::KvRequest request, rendezvous::RendezvousClient::KvAnswer answer);
  void table(rendezvous::RendezvousClient::TableAnswer answer);

  /// This node has finished the job. `done`: all nodes that must know of it do.
  /// @param keeps_coordinator  a coordinator here goes on for the others of a job that isn't over,
  /// as
  ///                      long as they need it or until resign()
  void leave(const std::string& why, bool keeps_coordinator, std::function<void()> done);
  void resign();

  /// Once: what this machine lacks for killing the workers of a node whose processes are all
  /// frozen.
  std::optional<std::string> take_lease_timer_warning();

  /// How the coordinator closed the job; nothing: this node ends without it.
  [[nodiscard]] const std::optional<rendezvous::Close>& close() const { return close_; }
  [[nodiscard]] Instant closed_at() const { return closed_at_; }
  [[nodiscard]] const std::string& node_name() const {
    return client_ ? client_->node_name() : node_.name;
  }

 private:
  void on_order(const rendezvous::NodeOrder& order);

  boost::asio::io_context& io_;
  const JobPlan& plan_;  // the agent owns it and us
  GuardianLink guardian_;
  std::string host_;
  OnOrder on_order_;
  NodeName node_;
  std::unique_ptr<rendezvous::RendezvousClient> client_;
  std::function<void()> resigned_;  ///< while only the coordinator goes on here
  std::optional<rendezvous::Close> close_;
  Instant closed_at_{};
  bool is_lease_timer_told_ = false;
};

}  // namespace acc::agent
