#pragma once

#include "agent/coordinated_job.hpp"
#include "agent/heartbeat_board.hpp"
#include "agent/local_store.hpp"
#include "agent/pmi_server.hpp"
#include "agent/user_messages.hpp"
#include "agent/worker_server.hpp"

#include <boost/asio/io_context.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

/// What the agent serves to the workers of a round over their sockets: the table of ranks, the
/// key-value store, the list of lost ranks, PMI for MPI programs. It also takes in their reports: a
/// checkpoint was written, a restart won't help.
class WorkerServices {
 public:
  /// @param job  null: the job has one node, and its store is here. All outlive the services.
  WorkerServices(boost::asio::io_context& io, const JobPlan& plan, std::string job_id,
                 CoordinatedJob* job, const UserMessages& messages, PmiServer::OnAbort on_abort);
  WorkerServices(const WorkerServices&) = delete;
  WorkerServices& operator=(const WorkerServices&) = delete;

  /// Before the workers are started. Nothing of the last round is left.
  void begin_round(Round round, RankRange ranks, WorldSize world);
  /// For ACC_AGENT_SOCKET; empty: not listening.
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  /// Null: the workers are no MPI programs.
  [[nodiscard]] PmiServer* pmi() { return pmi_.get(); }

  /// To all workers of this node that ask for it.
  void tell_lost(const std::vector<worker_socket::LostRank>& lost) { server_.tell_lost(lost); }
  /// To be called before a worker's exit is judged: its last message may be that a restart won't
  /// help.
  void drain() { server_.drain(); }
  [[nodiscard]] bool asked_not_to_restart(LocalRank worker) const {
    return asked_not_to_restart_.contains(worker);
  }
  /// Why, in its words; empty: it didn't ask, or gave no reason.
  [[nodiscard]] std::string no_restart_reason(LocalRank worker) const {
    const auto found = asked_not_to_restart_.find(worker);
    return found == asked_not_to_restart_.end() ? std::string{} : found->second;
  }
  /// The workers' heartbeats and sections of this round.
  [[nodiscard]] HeartbeatBoard& heartbeats() { return heartbeats_; }
  [[nodiscard]] const HeartbeatBoard& heartbeats() const { return heartbeats_; }
  void close();

 private:
  [[nodiscard]] WorkerCalls calls();

  boost::asio::io_context& io_;
  const JobPlan& plan_;
  std::string job_id_;
  CoordinatedJob* job_;
  const UserMessages& messages_;
  HeartbeatBoard heartbeats_;
  std::unique_ptr<LocalStore> store_;  ///< in a job on one node
  WorkerServer server_;
  std::unique_ptr<PmiServer> pmi_;            ///< only for programs of MPICH's kind
  std::map<LocalRank, std::string> asked_not_to_restart_;  ///< in this round, and why
};

}  // namespace acc::agent
