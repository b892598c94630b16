#include "agent/agent_loop.hpp"

#include "agent/control_server.hpp"
#include "agent/coordinated_job.hpp"
#include "agent/interrupt_watch.hpp"
#include "agent/job_folder_notes.hpp"
#include "agent/life_line_watch.hpp"
#include "agent/metrics_server.hpp"
#include "agent/report_file.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/random.hpp"

#include <boost/asio/post.hpp>

#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

// Events in, actions out. What a job on several nodes adds stands in agent_cluster.cpp.
namespace acc::agent {

namespace {

constexpr Millis kReportPatience{2'000};
// While a job is being stopped, a destination of output that takes nothing holds up workers for no
// longer than this: their grace is for a checkpoint. The end of the output is waited for no longer
// either …
constexpr Millis kStoppingPatience{2'000};
// … and no longer than this where a destination is merely slow.
constexpr Millis kStoppedFlush{30'000};
constexpr Millis kHurriedFlush{300};
constexpr Millis kForever{std::chrono::hours{24 * 365}};

bool wants_color(const OutputPlan& output, const ConsoleFacts& console) {
  if (output.color != Choice::automatic) return output.color == Choice::yes;
  return console.err_is_tty && !console.no_color;
}

std::optional<LocalRank> reader_of(const JobPlan& plan) {
  return plan.local_world_size == 1 ? std::optional{LocalRank{0}} : plan.stdin_rank;
}

// Machines may share the folder for logs.
std::string node_of(const JobPlan& plan) {
  if (plan.kind != JobKind::elastic || !plan.cluster.several()) return {};
  return plan.cluster.node_name.empty() ? host_name() : plan.cluster.node_name;
}

std::string watched_node(const JobPlan& plan) {
  const auto node = node_of(plan);
  return node.empty() ? host_name() : node;
}

int open_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signo :
       {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH})
    ::sigaddset(&set, signo);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) ::sigaddset(&set, SIGHUP);  // under nohup it stays ignored
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

AgentLoop::AgentLoop(const JobPlan& plan, const GuardianLink& guardian,
                     const DescriptorLimit& limit)
    : descriptors_{limit},
      plan_{plan},
      guardian_{guardian},
      console_{detect_console()},
      color_{wants_color(plan.output, console_)},
      random_{random_name()},
      job_id_{plan.cluster.job + '-' + random_},
      service_{guardian.pid},
      output_{io_, plan_.output, plan_.local_world_size, console_},
      messages_{[this](std::string_view line) { output_.say(line); }, plan_.output, color_},
      run_folder_{plan_.output, run_id_of(plan_.cluster.job, std::getenv(kJobFolderVariable)),
                  node_of(plan_), random_},
      workers_{io_,
               containment_,
               output_,
               {[this](const auto& record) { on_exit(record); },
                [this](const auto& failure) { on_started(failure); },
                [this](const auto& failure) {
                  handle(StartFailed{failure, clock_now()});
                },
                [this](pid_t pid) { lease_bound_.add(pid); }}},
      left_overs_{io_,
                  containment_,
                  {[this](pid_t pid) { return workers_.is_living_worker(pid); },
                   [this](const auto& asked) { on_left_overs_asked(asked); }}},
      lease_bound_{guardian},
      terminal_{io_,
                guardian,
                reader_of(plan),
                workers_,
                {[this] { on_terminal_stop(); }, [this] { messages_.kept_interrupt(); }}},
      starter_{{plan_, guardian_, console_, descriptors_, containment_, output_, run_folder_,
                messages_}},
      recorder_{plan_, workers_, output_, run_folder_, containment_},
      gpus_{io_},
      watch_{{io_, plan_, workers_, messages_, run_folder_, job_id_, watched_node(plan)},
             {[this](const auto& hang) { on_hang(hang); }, [this] { show_progress(); },
              comparing_nodes()}},
      node_stacks_{
          {io_, watch_,
           [this](auto request, auto answer) { job_->ask(std::move(request), std::move(answer)); },
           [this](auto answer) { job_->table(std::move(answer)); }}},
      max_restarts_{plan.restart.max_restarts},
      signals_{io_, open_signals()},
      guardian_fd_{io_},
      timers_{boost::asio::steady_timer{io_}, boost::asio::steady_timer{io_},
              boost::asio::steady_timer{io_}, boost::asio::steady_timer{io_},
              boost::asio::steady_timer{io_}, boost::asio::steady_timer{io_}},
      watchdog_{io_},
      health_timer_{io_},
      status_line_{io_, output_, [this] { return status_facts(); }} {
  group_.size = plan_.local_world_size;
  group_.restart = plan_.restart;
  group_.stop = plan_.stop;
  output_.set_job(job_id_, plan_.role);
  output_.on_degraded([this](const Losses& losses) {
    messages_.degraded(losses);
    events_.output_lost(losses);
    service_.status("degraded: " + losses.where + ": " + losses.why);
  });
  log::set_writer([this](std::string_view line) { output_.say(line); });
  if (descriptors_.before()) workers_.spawner().set_child_nofile(*descriptors_.before());
  if (guardian_.board != nullptr) workers_.spawner().heed_lease(&guardian_.board->lease_ends_ns);
}

AgentLoop::~AgentLoop() = default;

int AgentLoop::run() {
  watch_signals();
  watch_guardian();
  watch_life_line();
  feed_watchdog();
  boost::asio::post(io_, [this] { begin_job(); });
  boost::asio::post(io_, [this] { open_control(); });
  io_.run();
  // The supervisor always ends with Finish; without it the loop had nothing left to wait for, which
  // is a bug.
  const Finish finish = finish_.value_or(Finish{{Outcome::failed, to_int(ExitCode::failure)}});
  service_.stopping("job over: " + std::string{to_string(finish.end.outcome)});
  if (guardian_.board != nullptr) guardian_.board->finishing = true;
  output_.finish([this] { return flush_limits(); });
  // After the flush: the report includes output that was lost at the very end.
  auto report = make_report(finish.end);
  note_end(report);
  report.is_unwritten = !write_report(report);
  if (report.is_unwritten && report.exit_code == 0) report.exit_code = to_int(ExitCode::output);
  const std::string block = to_text(report, color_);
  if (!block.empty() && !plan_.output.is_reported_elsewhere) output_.say(block);
  output_.finish(kReportPatience, kReportPatience);
  log::set_writer([](std::string_view) {});
  return report.exit_code;
}

// ---- events in ----

void AgentLoop::handle(const Event& event) {
  const Phase before = group_.phase;
  const auto actions = step(group_, event);
  if (before != group_.phase) status_line_.phase_changed(group_.phase);
  if (log::enabled(log::Level::debug) && before != group_.phase) {
    log::debug("phase", {{"job", job_id_},
                         {"round", group_.round.value()},
                         {"from", to_string(before)},
                         {"to", to_string(group_.phase)}});
  }
  if (before == Phase::running && group_.phase != Phase::running) {
    const bool is_for_another = group_.stop_ordered && !group_.stop_ordered->for_good;
    watch_.round_ended(
        group_.first_failure || group_.restart_asked || group_.lease_over || is_for_another,
        clock_now());
    node_stacks_.round_ended();
  }
  for (const auto& action : actions) carry_out(action);
  spare_stopping_workers();
}

void AgentLoop::watch_signals() {
  signals_.async_wait(Descriptor::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    signalfd_siginfo info{};
    while (!finish_ && ::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
      const bool is_of_terminal = info.ssi_code == SI_QUEUE && info.ssi_int == kTerminalInterrupt;
      const bool has_workers = group_.phase == Phase::running || group_.phase == Phase::stopping;
      if (!is_of_terminal) on_signal(static_cast<int>(info.ssi_signo));
      if (is_of_terminal && has_workers) terminal_.pressed();
    }
    if (!finish_) watch_signals();
  });
}

void AgentLoop::on_signal(int signo) {
  switch (signo) {
    case SIGCHLD:
      on_child_changed();
      return;
    case SIGTSTP:
      watch_.suspended();
      workers_.signal(SIGTSTP);
      return;
    case SIGCONT:
      if (terminal_.lend_again()) group_.terminal_rank = terminal_.reader();
      workers_.signal(SIGCONT);
      watch_.resumed(clock_now());
      return;
    case SIGQUIT:
      return dump_stacks_before(signo);
    case SIGWINCH:
      output_.window_changed();
      workers_.signal(SIGWINCH);
      return;
    case SIGTERM:
      // Our parent-death signal can't be told from any other SIGTERM; where pidfd_open is refused
      // there is no other notification.
      if (guardian_.pid != 0 && ::getppid() != guardian_.pid) {
        handle(GuardianLost{std::chrono::steady_clock::now()});
        check_emptied();
        return;
      }
      [[fallthrough]];
    default:
      handle(SignalArrived{signo, std::chrono::steady_clock::now()});
      check_emptied();
  }
}

void AgentLoop::on_started(const std::optional<StartFailure>& failure) {
  const auto now = clock_now();
  if (failure) {
    events_.start_failed(group_.round, words_for(*failure));
    handle(StartFailed{*failure, now});
    check_emptied();
    return;
  }
  log::info("round_started",
            {{"job", job_id_}, {"round", group_.round.value()}, {"workers", group_.size}});
  note_round_started();
  handle(RoundStarted{now});
  watch_.round_started(services_->heartbeats(), group_.round, now);
  if (job_ && place_) node_stacks_.round_started(place_->node_rank, place_->nodes);
  if (group_.terminal_rank) terminal_.lent();
  forget_last_attempt();
  const std::string status = std::to_string(group_.size) + " workers running, attempt " +
                             std::to_string(group_.round.value());
  if (group_.round > Round{0}) return service_.status(status);
  service_.ready(status);
  boost::asio::post(io_, sweep_dead_cgroups);  // of others before us: not in the way of the start
}

void AgentLoop::forget_last_attempt() {
  if (run_folder_.forget_some(group_.round)) return;
  boost::asio::post(io_, [this] { forget_last_attempt(); });
}

// A child exited or stopped: a worker, whose pidfd reports its exit, or an orphan that was
// reparented to us.
void AgentLoop::on_child_changed() {
  heed_lease();
  if (group_.phase == Phase::running) terminal_.suspend_with_worker();
  if (group_.phase == Phase::killing) {
    left_overs_.kill();  // new orphans may have come up from those just killed
  } else if (group_.phase == Phase::stopping && group_.left_overs_due) {
    left_overs_.terminate();
  }
  after_exits();
}

// One look for all exits of a turn of the loop: the kernel walks through all children for it.
void AgentLoop::after_exits() {
  if (look_is_due_) return;
  look_is_due_ = true;
  boost::asio::post(io_, [this] {
    look_is_due_ = false;
    if (!workers_.reap_orphans()) return after_exits();
    check_emptied();
  });
}

void AgentLoop::on_exit(const WorkerRecord& record) {
  log::info("worker_exited", {{"job", job_id_},
                              {"round", group_.round.value()},
                              {"rank", record.rank.value()},
                              {"local_rank", record.local_rank.value()},
                              {"pid", record.pid},
                              {"status", describe(*record.status)}});
  events_.worker_ended(group_.round, record);
  if (record.local_rank == terminal_.reader())
    terminal_.take_back(record, group_.terminal_rank == record.local_rank);
  heed_lease();
  services_->drain();  // its last message
  tell_workers_of(record);
  handle(WorkerExited{record.local_rank, *record.status, record.ended,
                      services_->asked_not_to_restart(record.local_rank)});
  if (group_.phase == Phase::running)
    service_.status(std::to_string(group_.alive) + " workers running");
  after_exits();
}

// The round is over when no process of it is left, also none that went its own way.
void AgentLoop::check_emptied() {
  if (finish_ || (group_.phase != Phase::stopping && group_.phase != Phase::killing)) return;
  if (!containment_.is_empty()) return;
  output_.end_round();
  left_overs_.reset();
  const bool progress = starter_.progress_changed() || watch_.saw_checkpoint();
  handle(Emptied{std::chrono::steady_clock::now(), progress, random_fraction()});
  check_emptied();  // the next round may have failed to start at once
}

void AgentLoop::on_hang(const JobWatch::Hang& hang) {
  recorder_.note_stacks(hang.file);
  handle(HangFound{hang.rank, hang.cause, clock_now()});
  check_emptied();
}

// As a core dump would, the stacks show what the workers were doing. A second signal doesn't wait.
void AgentLoop::dump_stacks_before(int signo) {
  const auto stop = [this, signo] {
    handle(SignalArrived{signo, clock_now()});
    check_emptied();
  };
  const bool is_second = std::exchange(stops_after_stacks_, true);
  if (group_.phase != Phase::running || watch_.is_collecting() || is_second) return stop();
  messages_.announce(signal_name(signo) + ": collecting the workers' stacks, then stopping");
  collect_stacks(signal_name(signo) + " to acc-launch", [this, stop](const auto&) {
    if (!finish_ && group_.phase == Phase::running) stop();
  });
}

// The first press only went to the worker; with it, this is the second.
void AgentLoop::on_terminal_stop() {
  if (finish_) return;
  if (group_.interrupts == 0) {
    is_hurrying_at_once_ = true;
    handle(SignalArrived{SIGINT, clock_now()});
  }
  handle(SignalArrived{SIGINT, clock_now()});
  is_hurrying_at_once_ = false;
  check_emptied();
}

void AgentLoop::watch_guardian() {
  if (guardian_.pid == 0) return;
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, guardian_.pid, 0U));
  if (fd < 0) return;  // PDEATHSIG still sends SIGTERM
  guardian_fd_.assign(fd);
  guardian_fd_.async_wait(Descriptor::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    handle(GuardianLost{std::chrono::steady_clock::now()});
    check_emptied();
  });
}

// A signal takes the way of one from this host, over the guardian, which counts those to hurry.
void AgentLoop::watch_life_line() {
  if (!plan_.life_line) return;
  const auto on_passed = [this](int signo) {
    if (guardian_.pid != 0) {
      ::kill(guardian_.pid, signo);
    } else {
      on_signal(signo);
    }
  };
  const auto on_end = [this](const std::string& why) {
    if (finish_) return;
    end_reason_ = why;
    messages_.warning(why + ": stopping the workers here");
    handle(GuardianLost{clock_now()});
    check_emptied();
  };
  life_line_ = std::make_unique<LifeLineWatch>(io_, plan_.life_line->fd, on_passed, on_end);
}

void AgentLoop::feed_watchdog() {
  const auto period = service_.watchdog_period();
  if (!period) return;
  service_.feed_watchdog();
  watchdog_.expires_after(*period);
  watchdog_.async_wait([this](boost::system::error_code error) {
    if (!error) feed_watchdog();
  });
}

// ---- actions out ----

void AgentLoop::carry_out(const Action& action) {
  std::visit([this](const auto& a) { act(a); }, action);
}

void AgentLoop::begin_round(const StartRound& a) {
  left_overs_.reset();  // nothing of a kill of the last round may reach this one
  if (!services_) {
    services_ = std::make_unique<WorkerServices>(
        io_, plan_, job_id_, job_.get(), messages_,
        [this](Rank rank, int code) { workers_.abort(rank, code); });
  }
  const bool lends_terminal = terminal_.is_lent_at_start();
  group_.terminal_rank = lends_terminal ? terminal_.reader() : std::nullopt;
  lease_bound_.clear();
  recorder_.begin_round(a.round);
  auto prepared = starter_.prepare({a.round, job_id_, place_, group_.ledger.restarts, max_restarts_,
                                    restart_reason_, terminal_.reader(), lends_terminal},
                                   *services_);
  if (const auto* failure = std::get_if<StartFailure>(&prepared)) return on_started(*failure);
  workers_.start(std::move(std::get<Launch>(prepared)));
}

// Two presses in a worker's terminal: it was sent SIGINT by the kernel. One of ours, too, could
// hide the next press from the watch: a signal that is pending is not queued again.
void AgentLoop::act(const SignalWorkers& a) {
  if (!is_hurrying_at_once_ || a.signo != SIGINT) workers_.signal(a.signo);
}

void AgentLoop::act(const TerminateEscaped&) {
  if (!containment_.is_empty()) left_overs_.terminate();
}

void AgentLoop::on_left_overs_asked(const std::vector<LeftOver>& asked) {
  if (group_.alive > 0) return;
  messages_.left_over(asked);
  for (const auto& process : asked) recorder_.add_left_over(process);
}

void AgentLoop::act(const KillAll&) {
  if (health_ && !job_) health_->cancel();  // one before a round that won't be
  workers_.cancel_start();
  workers_.signal(SIGKILL);  // needs neither /proc nor a cgroup
  left_overs_.kill();
}

void AgentLoop::act(const ArmTimer& a) {
  auto& timer = timers_.at(static_cast<std::size_t>(a.timer));
  timer.expires_after(a.timer == Timer::left_over ? left_over_patience(a.after) : a.after);
  timer.async_wait([this, which = a.timer](boost::system::error_code error) {
    if (error || finish_) return;
    handle(TimerFired{which, std::chrono::steady_clock::now()});
    check_emptied();
  });
}

void AgentLoop::act(const DisarmTimer& a) {
  timers_.at(static_cast<std::size_t>(a.timer)).cancel();
}

void AgentLoop::act(const Finish& a) {
  finish_ = a;
  status_line_.close();
  end_loop();
}

void AgentLoop::act(const TellFailure& a) {
  recorder_.add(recorder_.describe(a.failure));
  const auto& failure = recorder_.latest();
  events_.failed(failure);
  restart_reason_ = "rank " + std::to_string(failure.worker.rank.value()) + " " + failure.cause;
  const bool nobody_waits =
      group_.size == 1 && group_.ledger.budget_used >= group_.restart.max_restarts;
  if (!nobody_waits) messages_.failure(failure);
  if (terminal_.reader() != failure.worker.local_rank) messages_.wanted_input(failure);
}

void AgentLoop::act(const TellRestart& a) {
  messages_.restart(a);
  events_.restarting(a.ledger.restarts + 1, a.max_restarts, a.delay, restart_reason_);
  service_.status(restart_words(a.ledger, a.max_restarts) + " after: " + restart_reason_);
}

void AgentLoop::act(const TellStartRetry& a) { messages_.start_retry(a, words_for(a.failure)); }

void AgentLoop::act(const TellStopping& a) {
  if (!is_hurrying_at_once_) messages_.stopping(a);
  events_.stopping(a.signo, a.grace);
  service_.stopping("stopping, asked by " + signal_name(a.signo));
}

void AgentLoop::act(const TellNoRestart& a) { messages_.no_restart(a); }
void AgentLoop::act(const TellHurry& a) { messages_.hurry(a, is_hurrying_at_once_); }

void AgentLoop::act(const TellKilling& a) {
  const auto alive = containment_.left_over(LeftOvers::kNamed);
  messages_.killing(a, alive);
  if (group_.alive > 0) return;
  for (const auto& process : alive) recorder_.add_left_over(process);
}

// ---- the output's end and the report ----

void AgentLoop::spare_stopping_workers() {
  const bool is_ending = group_.phase == Phase::stopping || group_.phase == Phase::killing;
  if (is_ending &&
      (group_.stop_signal != 0 || (group_.stop_ordered && group_.stop_ordered->for_good)))
    output_.shorten_patience(kStoppingPatience);
}

// How long the rest of the output is waited for. The loop has ended: signals are looked for here.
FlushLimits AgentLoop::flush_limits() {
  if (service_.watchdog_period()) service_.feed_watchdog();
  signalfd_siginfo info{};
  while (::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
    const auto signo = static_cast<int>(info.ssi_signo);
    is_flush_hurried_ = is_flush_hurried_ || signo == SIGINT || signo == SIGTERM ||
                        signo == SIGHUP || signo == SIGQUIT;
  }
  if (is_flush_hurried_ || group_.guardian_lost || group_.interrupts >= 2)
    return {kHurriedFlush, kHurriedFlush};
  const Millis patience = plan_.output.patience;
  if (group_.stop_signal == 0) return {patience, kForever};
  return {std::min(patience, kStoppingPatience), kStoppedFlush};
}

std::string AgentLoop::words_for(const StartFailure& failure) const {
  return recorder_.words_for(failure, starter_.program());
}

JobReport AgentLoop::make_report(const End& end) const {
  JobRecorder::JobEnd job{.job_id = job_id_,
                          .guardian = guardian_.pid,
                          .end = end,
                          .group = group_,
                          .world_size = place_ ? place_->world_size : plan_.world_size,
                          .max_restarts = max_restarts_,
                          .program = starter_.program(),
                          .last_word = {},
                          .reason = end_reason_,
                          .restarted_after = job_ ? restart_reason_ : std::string{},
                          .goodput = watch_.goodput(clock_now())};
  const bool by_signal = end.outcome == Outcome::stopped || end.outcome == Outcome::preempted;
  if (group_.is_signal_unheard && by_signal)
    job.reason = signal_name(group_.stop_signal) + "; the other nodes could not be told";
  if (job_ && job_->close()) job.last_word = {*job_->close(), job_->node_name(), job_->closed_at()};
  return recorder_.report(job);
}

bool AgentLoop::write_report(const JobReport& report) {
  if (plan_.report_file.empty()) return true;
  const ShortReport instead{to_string(report.outcome),
                            report.exit_code == 0 ? to_int(ExitCode::output) : report.exit_code,
                            "the whole report could not be written", guardian_.pid};
  const auto written = write_report_file(plan_.report_file, to_json(report), instead);
  note_report_written(guardian_);
  if (written.has_error()) messages_.error("the report is lost: " + written.error().what);
  return written.has_value();
}

}  // namespace acc::agent
