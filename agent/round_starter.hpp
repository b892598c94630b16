#pragma once

#include "agent/containment.hpp"
#include "agent/descriptor_limit.hpp"
#include "agent/environment.hpp"
#include "agent/group_state.hpp"
#include "agent/guardian_board.hpp"
#include "agent/output/output_hub.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/user_messages.hpp"
#include "agent/worker_services.hpp"
#include "agent/worker_start.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace acc::agent {

/// Prepares the start of a round: folders, ports, the workers' environment and program.
class RoundStarter {
 public:
  /// All outlive the starter: the agent owns them.
  struct Tools {
    const JobPlan& plan;
    const GuardianLink& guardian;
    const ConsoleFacts& console;
    const DescriptorLimit& descriptors;
    Containment& containment;
    OutputHub& output;
    RunFolder& run_folder;
    const UserMessages& messages;
    const std::unique_ptr<Preloader>& preloader;  ///< null: workers start cold
  };
  explicit RoundStarter(const Tools& tools);

  /// Parameters of the round, from the supervisor and the coordinator.
  struct Order {
    Round round{0};
    std::string job_id;
    std::optional<Assignment> place;  ///< nothing: one node, where it follows by arithmetic
    std::uint32_t restarts = 0;
    std::uint32_t max_restarts = 0;
    std::string restart_reason;
    std::optional<LocalRank> reader;  ///< gets our stdin
    bool lends_terminal = false;
  };
  [[nodiscard]] std::variant<Launch, StartFailure> prepare(const Order& order,
                                                           WorkerServices& services);
  /// What all workers of this node have in all rounds; nothing: the interpreter was not found.
  [[nodiscard]] std::optional<Preloader::Program> preload_program(
      const std::string& job_id) const;
  /// On node rank 0 of a job on several nodes: a port for the workers' store, held until the next
  /// round. A fixed job's first round has the port that its users expect: if another job on this
  /// host has it, the port is another one, so that no worker meets that job, and the start fails.
  std::uint16_t reserve_store_port(Round round);
  /// Did --progress_file change since the round was prepared?
  [[nodiscard]] bool progress_changed() const;
  /// As found on PATH; empty: it was not found.
  [[nodiscard]] const std::string& program() const { return program_; }
  /// Of the last round; 0: its workers don't have it from us.
  [[nodiscard]] std::uint16_t master_port() const {
    return plan_.kind == JobKind::elastic ? master_.port : 0;
  }
  /// Not while the job is suspended (Ctrl-Z): the user wants the machine for something else.
  void postpone(const StartRound& start) { postponed_ = start; }
  [[nodiscard]] std::optional<StartRound> take_postponed() {
    return std::exchange(postponed_, std::nullopt);
  }
  /// One process without a rank.
  [[nodiscard]] bool is_plain() const { return plan_.kind == JobKind::process; }

 private:
  [[nodiscard]] std::optional<StartFailure> check_descriptors(bool has_lease);
  std::string make_folders(Round round);
  [[nodiscard]] Assignment assign_here(const Order& order);
  Master choose_master(bool is_restart);
  bool reserve(std::uint16_t port);
  void reserve_fresh_port();

  Tools tools_;
  const JobPlan& plan_;
  Master master_;              ///< of the last round; the plan's in the first
  std::string port_refusal_;   ///< why the round whose port was reserved last may not start
  UniqueFd port_reservation_;  ///< of the store's port in this round
  bool is_first_check_ = true;  ///< of descriptors
  std::string progress_seen_;
  std::string program_;
  std::optional<StartRound> postponed_;
};

}  // namespace acc::agent
