#pragma once

#include "agent/containment.hpp"
#include "agent/control_protocol.hpp"
#include "agent/descriptor_limit.hpp"
#include "agent/event_log.hpp"
#include "agent/gpu_watch.hpp"
#include "agent/guardian_board.hpp"
#include "agent/health_check.hpp"
#include "agent/job_events.hpp"
#include "agent/job_plan.hpp"
#include "agent/job_recorder.hpp"
#include "agent/lease_timer.hpp"
#include "agent/left_overs.hpp"
#include "agent/lent_terminal.hpp"
#include "agent/node_stacks.hpp"
#include "agent/output/output_hub.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/round_starter.hpp"
#include "agent/service_notify.hpp"
#include "agent/status_line.hpp"
#include "agent/supervisor.hpp"
#include "agent/user_messages.hpp"
#include "agent/watch/job_watch.hpp"
#include "agent/worker_group.hpp"
#include "agent/worker_services.hpp"
#include "rendezvous/coordinator_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

class ControlServer;
class PmiServer;
class CoordinatedJob;
class LifeLineWatch;
class LocalStore;
class MetricsServer;
class WorkerServer;
struct NodeFacts;
struct WorkerCalls;

/// The agent's event loop: feeds the supervisor with events (signals, exits, timers, the guardian's
/// end) and carries out its actions. One thread.
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
  void watch_life_line();
  void on_exit(const WorkerRecord& record);
  void feed_watchdog();
  void after_exits();
  void check_emptied();
  void on_started(const std::optional<StartFailure>& failure);
  void on_terminal_stop();
  void on_hang(const JobWatch::Hang& hang);
  void dump_stacks_before(int signo);

  // actions out
  void carry_out(const Action& action);
  void act(const StartRound& a);
  void act(const SignalWorkers& a);
  void act(const TerminateEscaped& a);
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
  void act(const TellRestartAsked& a);
  // only of jobs on several nodes: agent_cluster.cpp
  void act(const ReportFailed& a);
  void act(const ReportStartFailed& a);
  void act(const ReportCompleted& a);
  void act(const ReportStopped& a);
  void act(const ReportUnkillable& a);
  void act(const AskJob& a);
  void act(const AskRestart& a);

  // a job on several nodes: agent_cluster.cpp
  void begin_job();
  void join_job();
  void join_nodes();
  void on_order(const rendezvous::NodeOrder& order);
  /// What an order requires before it reaches the supervisor.
  void prepare(const rendezvous::OrderPort& order);
  void prepare(const rendezvous::OrderRound& order);
  void prepare(const rendezvous::OrderStop& order);
  void prepare(const rendezvous::OrderKill& order);
  void prepare(const rendezvous::GiveUp& order);
  void prepare(const rendezvous::Tell& order);
  template <class Other>
  void prepare(const Other&) {}
  void heed_lease();
  void tell_workers_of(const WorkerRecord& record);
  [[nodiscard]] NodeFacts node_facts() const;
  /// Null for a job on one node.
  std::function<void(const evidence::NodeEvidence&, std::function<void(JobWatch::Evidence)>)>
  comparing_nodes();
  /// Of all ranks of the job.
  void collect_stacks(const std::string& why, JobWatch::Collected done);
  void end_loop();

  // the control socket: agent_control.cpp
  void open_control();
  void on_control(const control::Request& request, uid_t uid,
                  std::function<void(std::string)> reply);
  void ask_all_for_restart(std::function<void(std::string)> reply);
  void reply_status(control::Status wanted, std::function<void(std::string)> reply);
  [[nodiscard]] control::JobView view(const control::Status& wanted = {}) const;
  void add_gpus(control::JobView& seen);
  [[nodiscard]] std::optional<control::WorkerView::Progress> progress_of(
      const WorkerRecord& record) const;

  // what happened, for --events and --metrics: agent_events.cpp
  void open_events();
  void open_metrics();
  [[nodiscard]] std::string metrics();
  void note_round_started();
  void note_end(JobReport& report);

  // the health of this node: agent_health.cpp
  void open_health();
  void begin_round(const StartRound& a);
  void report_stopped(const ReportStopped& a);
  void check_at_interval();
  void leave_unfit(const std::string& why);
  void note_clock_skew(Millis ahead);

  // the status line on a terminal: agent_status.cpp
  void open_status();
  /// Of running workers, from their heartbeats.
  void show_progress();
  void note_progress(const std::vector<WorkerProgress>& workers);
  [[nodiscard]] StatusFacts status_facts() const;

  // helpers
  void forget_last_attempt();
  void spare_stopping_workers();
  [[nodiscard]] FlushLimits flush_limits();
  void on_left_overs_asked(const std::vector<LeftOver>& asked);
  [[nodiscard]] std::string words_for(const StartFailure& failure) const;
  [[nodiscard]] JobReport make_report(const End& end) const;
  bool write_report(const JobReport& report);

  DescriptorLimit descriptors_;
  const JobPlan plan_;
  GuardianLink guardian_;
  ConsoleFacts console_;
  bool color_;
  std::string random_;
  std::string job_id_;

  boost::asio::io_context io_{1};
  ServiceNotifier service_;
  Containment containment_;
  OutputHub output_;
  UserMessages messages_;
  RunFolder run_folder_;
  WorkerGroup workers_;
  LeftOvers left_overs_;
  LeaseBoundGroups lease_bound_;
  LentTerminal terminal_;
  RoundStarter starter_;
  JobRecorder recorder_;
  JobEvents events_;
  std::unique_ptr<EventLog> event_log_;            ///< --events
  std::unique_ptr<MetricsServer> metrics_server_;  ///< --metrics
  std::unique_ptr<HealthCheck> health_;            ///< --health
  GpuWatch gpus_;
  JobWatch watch_;
  NodeStacks node_stacks_;  ///< used in a job on several nodes
  GroupState group_;
  std::unique_ptr<CoordinatedJob> job_;  ///< in a job on several nodes
  std::optional<Assignment> place_;      ///< there: from the coordinator
  std::uint32_t max_restarts_;           ///< there: the coordinator's
  std::unique_ptr<WorkerServices> services_;
  std::unique_ptr<ControlServer> control_;  ///< none: no folder for it, or it can't be made
  Instant began_ = clock_now();

  Descriptor signals_;
  Descriptor guardian_fd_;
  std::unique_ptr<LifeLineWatch> life_line_;
  std::array<boost::asio::steady_timer, kTimers> timers_;
  boost::asio::steady_timer watchdog_;
  boost::asio::steady_timer health_timer_;
  StatusLine status_line_;

  std::string restart_reason_;
  rendezvous::RendezvousClient::RestartAnswer restart_answer_;  ///< for AskRestart
  std::string end_reason_;    ///< why this node ended without the coordinator
  bool look_is_due_ = false;  ///< after_exits() is on its way
  std::optional<Finish> finish_;
  bool stops_after_stacks_ = false;   ///< the first SIGQUIT; the next one doesn't wait for them
  bool is_hurrying_at_once_ = false;  ///< of two presses in a worker's terminal the first is old
  struct ProgressTold {
    std::optional<Round> round;
    Instant when{};
    bool had_rate = false;
  };
  ProgressTold progress_told_;            ///< the last event
  std::optional<health::Finding> clock_;  ///< that it differs from the coordinator's
  bool is_flush_hurried_ = false;         ///< a signal came after the workers' end
};

}  // namespace acc::agent
