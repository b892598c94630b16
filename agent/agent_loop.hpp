#pragma once

#include "agent/containment.hpp"
#include "agent/control_requests.hpp"
#include "agent/coordinator_link.hpp"
#include "agent/descriptor_limit.hpp"
#include "agent/guardian_board.hpp"
#include "agent/job_course.hpp"
#include "agent/job_ending.hpp"
#include "agent/job_plan.hpp"
#include "agent/job_recorder.hpp"
#include "agent/job_signals.hpp"
#include "agent/job_status.hpp"
#include "agent/job_telemetry.hpp"
#include "agent/left_overs.hpp"
#include "agent/lent_terminal.hpp"
#include "agent/node_health.hpp"
#include "agent/output/output_hub.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/preload/preloader.hpp"
#include "agent/parent_watch.hpp"
#include "agent/round_starter.hpp"
#include "agent/round_terms.hpp"
#include "agent/supervisor.hpp"
#include "agent/supervisor_timers.hpp"
#include "agent/user_messages.hpp"
#include "agent/watch/job_watch.hpp"
#include "agent/worker_group.hpp"
#include "agent/worker_services.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::agent {

/// The agent's event loop: feeds the supervisor with events (signals, exits, timers, orders of a
/// coordinator, the guardian's end) and carries out its actions. One thread.
class AgentLoop {
 public:
  /// @param limit  outlives the loop
  AgentLoop(const JobPlan& plan, const GuardianLink& guardian, const DescriptorLimit& limit);
  AgentLoop(const AgentLoop&) = delete;
  AgentLoop& operator=(const AgentLoop&) = delete;
  ~AgentLoop();

  /// Blocks until the job is over. @return its exit code.
  int run();

 private:
  AgentLoop(const JobPlan& plan, const GuardianLink& guardian, const DescriptorLimit& limit,
            const std::string& random);
  // What the parts tell the loop.
  WorkerGroup::Hooks worker_hooks();
  LeftOvers::Hooks left_over_hooks();
  LentTerminal::Hooks terminal_hooks();
  JobWatch::Hooks watch_hooks();
  NodeHealth::Hooks health_hooks();
  JobSignals::Hooks signal_hooks();
  ParentWatch::Hooks parent_hooks();
  ControlRequests::Hooks control_hooks();
  CoordinatorLink::Hooks link_hooks();

  // the start
  void begin_job();
  void join_job();
  void open_control();

  // events in
  void handle(const Event& event);
  /// … and afterwards looks whether the round is over.
  void feed(const Event& event);
  void on_job_control(int signo);
  void on_child_changed();
  void look_for_exits();
  void check_emptied();
  void on_started(const std::optional<StartFailure>& failure);
  void on_exit(const WorkerRecord& record);
  void on_hang(const JobWatch::Hang& hang);
  void leave_unfit(const std::string& why);

  // actions out: JobCourse carries out messages, CoordinatorLink reports of a job on several nodes;
  // the rest is here
  void carry_out(const Action& action);
  void act(const StartRound& a);
  void act(const SignalWorkers& a);
  void act(const TerminateEscaped& a);
  void act(const KillAll& a);
  void act(const ArmTimer& a);
  void act(const DisarmTimer& a);
  void act(const Finish& a);
  void act(const ReportStopped& a);
  void act(const AskRestart& a);

  // helpers
  void begin_round(const StartRound& a);
  void open_preloader();
  void make_workers(const StartRound& a);
  void forget_last_attempt();
  void heed_lease();
  void show_progress();
  void collect_stacks(const evidence::Question& question, StackCollection::Collected done);
  [[nodiscard]] std::string node_name() const;

  const JobPlan plan_;
  GuardianLink guardian_;
  ConsoleFacts console_;
  const std::string job_id_;

  boost::asio::io_context io_{1};
  Containment containment_;
  OutputHub output_;
  UserMessages messages_;
  RunFolder run_folder_;
  GroupState group_;
  RoundTerms terms_;
  SupervisorTimers timers_;
  WorkerGroup workers_;
  LeftOvers left_overs_;
  LentTerminal terminal_;
  std::unique_ptr<Preloader> preloader_;  ///< --preload
  RoundStarter starter_;
  JobRecorder recorder_;
  JobWatch watch_;
  JobStatus status_;
  NodeHealth health_;
  JobTelemetry telemetry_;
  JobSignals signals_;
  ParentWatch parents_;
  JobCourse course_;
  ControlRequests control_;
  JobEnding ending_;
  std::unique_ptr<CoordinatorLink> link_;     ///< in a job on several nodes
  std::unique_ptr<WorkerServices> services_;  ///< from the first round on
  bool look_is_due_ = false;                  ///< look_for_exits() is on its way
};

}  // namespace acc::agent
