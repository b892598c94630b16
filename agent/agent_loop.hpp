#pragma once

#include "agent/containment.hpp"
#include "agent/descriptor_limit.hpp"
#include "agent/environment.hpp"
#include "agent/guardian.hpp"
#include "agent/job_plan.hpp"
#include "agent/left_overs.hpp"
#include "agent/lease_timer.hpp"
#include "agent/memory_limit.hpp"
#include "agent/narrator.hpp"
#include "agent/output_hub.hpp"
#include "agent/report.hpp"
#include "agent/run_folder.hpp"
#include "agent/service_notify.hpp"
#include "agent/supervisor.hpp"
#include "agent/terminal.hpp"
#include "agent/terminal_interrupts.hpp"
#include "agent/worker_group.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace acc::rendezvous {
struct RoundPlace;
}

namespace acc::agent {

class LocalStore;
class PmiServer;
class Seat;
class WorkerServer;
struct WorkerCalls;

/// Carries out what the supervisor decides and tells it what happens: signals, exits, timers, the
/// guardian's end. One thread, one loop.
class AgentLoop {
 public:
  AgentLoop(const JobPlan& plan, const GuardianLink& guardian, const DescriptorLimit& limit);
  AgentLoop(const AgentLoop&) = delete;
  AgentLoop& operator=(const AgentLoop&) = delete;
  ~AgentLoop();

  /// Blocks until the job is over. @return its exit code.
  int run();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  // events in
  void handle(const Event& event);
  void watch_signals();
  void on_signal(int signo);
  void on_child_changed();
  void watch_guardian();
  void on_exit(const WorkerRecord& record);
  void feed_watchdog();
  void after_exits();
  void check_emptied();

  // actions out
  void carry_out(const Action& action);
  void act(const StartRound& a);
  void act(const SignalWorkers& a);
  void act(const TermStrays& a);
  void act(const KillAll& a);
  void act(const ArmTimer& a);
  void act(const DisarmTimer& a);
  void act(const Finish& a);
  void act(const TellFailure& a);
  void act(const TellRestart& a);
  void act(const TellStartRetry& a);
  void act(const TellStopping& a);
  void act(const TellNoRestart& a);
  void act(const TellHurry& a);
  void act(const TellKilling& a);
  // only of jobs on several nodes: agent_cluster.cpp
  void act(const ReportFailed& a);
  void act(const ReportStartFailed& a);
  void act(const ReportCompleted& a);
  void act(const ReportStopped& a);
  void act(const ReportUnkillable& a);
  void act(const AskJob& a);

  // helpers
  void begin_job();
  void take_seat();
  void take_place(const rendezvous::RoundPlace& place);
  std::uint16_t reserve_store_port(Round round);
  void heed_lease();
  void end_loop();
  void listen_to_workers();
  [[nodiscard]] WorkerCalls worker_calls();
  void start_workers();
  std::variant<Launch, StartFailure> prepare_round();
  [[nodiscard]] std::optional<StartFailure> check_descriptors() const;
  void on_started(const std::optional<StartFailure>& failure);
  void on_exec_failed(const StartFailure& failure);
  void forget_last_attempt();
  Assignment assign_here();
  Master choose_master();
  void tell_workers_of(const WorkerRecord& record);
  [[nodiscard]] OomFacts oom_facts(const ExitStatus& status) const;
  FailureReport describe_failure(const WorkerFailure& failure);
  [[nodiscard]] std::string words_for(const StartFailure& failure) const;
  JobReport make_report(const Finish& finish) const;
  void add_job_end(JobReport& report) const;
  bool write_report(const JobReport& report);
  bool progress_changed();
  // the terminal: agent_terminal.cpp
  void suspend_with_worker();
  void continue_workers();
  void lend_terminal();
  void take_terminal_from(const WorkerRecord& record);
  void on_terminal_interrupt();
  void look_at_interrupts();
  void obey(TerminalInterrupts::Answer answer);
  void hint_at_stdin(const FailureReport& failure) const;
  // the end of the output
  void spare_stopping_workers();
  [[nodiscard]] OutputHub::FlushLimits flush_limits();
  [[nodiscard]] pid_t reader_pid() const;
  void on_left_overs_asked(const std::vector<LeftOver>& asked);
  void add_left_over(const LeftOver& process);

  DescriptorLimit descriptors_;
  JobPlan plan_;
  GuardianLink guardian_;
  ConsoleFacts console_;
  std::optional<LocalRank> reader_;  ///< the worker that gets our stdin
  Terminal terminal_;
  bool color_;
  std::string random_;
  std::string job_id_;
  Instant began_;

  boost::asio::io_context io_{1};
  ServiceNotifier service_;
  MemoryWatch memory_;
  Containment containment_;
  OutputHub output_;
  Narrator narrator_;
  RunFolder run_folder_;
  WorkerGroup workers_;
  LeftOvers left_overs_;
  LeaseBoundGroups lease_bound_;
  GroupState group_;
  std::unique_ptr<Seat> seat_;       ///< in a job on several nodes
  std::optional<Assignment> place_;  ///< there: as the coordinator said
  std::unique_ptr<WorkerServer> worker_server_;
  std::unique_ptr<PmiServer> pmi_server_;  ///< only for programs of MPICH's kind
  std::set<LocalRank> asked_not_to_restart_;  ///< in this round
  std::unique_ptr<LocalStore> local_store_;   ///< in a job on one node

  Descriptor signals_;
  Descriptor guardian_fd_;
  std::array<boost::asio::steady_timer, kTimers> timers_;
  boost::asio::steady_timer watchdog_;
  boost::asio::steady_timer interrupt_timer_;
  TerminalInterrupts interrupts_;
  UniqueFd port_reservation_;  ///< of the store's port in this round

  std::string restart_reason_;
  std::string progress_seen_;
  std::string program_path_;
  std::vector<FailureReport> failures_;  ///< the first and the latest
  std::uint32_t failed_rounds_ = 0;
  bool look_is_due_ = false;            ///< after_exits() is on its way
  std::vector<std::string> left_over_;  ///< names; at most LeftOvers::kNamed
  std::size_t left_over_count_ = 0;
  std::optional<Finish> finish_;
  bool is_flush_hurried_ = false;  ///< a signal came after the workers' end
};

}  // namespace acc::agent
