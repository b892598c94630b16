#include "agent/agent_loop.hpp"

#include "agent/interrupt_watch.hpp"
#include "agent/local_store.hpp"
#include "agent/pmi_server.hpp"
#include "agent/seat.hpp"
#include "agent/worker_server.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/random.hpp"

#include <boost/asio/post.hpp>

#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

// Events in, actions out. How a round is started and reported stands in agent_round.cpp and
// agent_report.cpp.
namespace acc::agent {

namespace {

constexpr Millis kReportPatience{2'000};

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
      reader_{reader_of(plan)},
      terminal_{guardian.pid},
      color_{wants_color(plan.output, console_)},
      random_{random_name()},
      job_id_{plan.rendezvous.id + '-' + random_},
      began_{std::chrono::steady_clock::now()},
      service_{guardian.pid},
      output_{io_, plan_.output, plan_.local_world_size, console_},
      narrator_{[this](std::string_view line) { output_.say(line); }, plan_.output.quiet, color_},
      run_folder_{plan_.output, plan_.rendezvous.id, node_of(plan_), random_},
      workers_{io_,
               containment_,
               output_,
               {[this](const auto& record) { on_exit(record); },
                [this](const auto& failure) { on_started(failure); },
                [this](const auto& failure) { on_exec_failed(failure); },
                [this](pid_t pid) { lease_bound_.add(pid); }}},
      left_overs_{io_,
                  containment_,
                  {[this](pid_t pid) { return workers_.is_living_worker(pid); },
                   [this](const auto& asked) { on_left_overs_asked(asked); }}},
      lease_bound_{guardian},
      signals_{io_, open_signals()},
      guardian_fd_{io_},
      timers_{boost::asio::steady_timer{io_}, boost::asio::steady_timer{io_},
              boost::asio::steady_timer{io_}, boost::asio::steady_timer{io_},
              boost::asio::steady_timer{io_}},
      watchdog_{io_},
      interrupt_timer_{io_} {
  group_.size = plan_.local_world_size;
  group_.restart = plan_.restart;
  group_.stop = plan_.stop;
  output_.set_job(job_id_, plan_.role);
  output_.on_degraded([this](const Losses& losses) {
    narrator_.degraded(losses);
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
  feed_watchdog();
  boost::asio::post(io_, [this] { begin_job(); });
  io_.run();
  // The supervisor always ends with Finish; without it the loop had nothing left to wait for, which
  // is a bug.
  const Finish finish = finish_.value_or(Finish{Verdict::failed, 1});
  service_.stopping("job over: " + std::string{to_string(finish.verdict)});
  if (guardian_.board != nullptr) guardian_.board->finishing = true;
  output_.finish([this] { return flush_limits(); });
  // After the flush: the report tells what was lost, also at the very end.
  auto report = make_report(finish);
  report.is_unwritten = !write_report(report);
  if (report.is_unwritten && report.exit_code == 0) report.exit_code = to_int(ExitCode::output);
  const std::string block = to_text(report, color_);
  if (!block.empty()) output_.say(block);
  output_.finish(kReportPatience, kReportPatience);
  log::set_writer([](std::string_view) {});
  return report.exit_code;
}

// ---- events in ----

void AgentLoop::handle(const Event& event) {
  const Phase before = group_.phase;
  const auto actions = step(group_, event);
  if (log::enabled(log::Level::debug) && before != group_.phase) {
    log::debug("phase", {{"job", job_id_},
                         {"round", group_.round.value()},
                         {"from", to_string(before)},
                         {"to", to_string(group_.phase)}});
  }
  for (const auto& action : actions) carry_out(action);
  spare_stopping_workers();
}

void AgentLoop::watch_signals() {
  signals_.async_wait(Descriptor::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    signalfd_siginfo info{};
    while (!finish_ && ::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
      if (info.ssi_code == SI_QUEUE && info.ssi_int == kTerminalInterrupt)
        on_terminal_interrupt();
      else
        on_signal(static_cast<int>(info.ssi_signo));
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
      workers_.signal(SIGTSTP);
      return;
    case SIGCONT:
      continue_workers();
      return;
    case SIGWINCH:
      output_.window_changed();
      workers_.signal(SIGWINCH);
      return;
    case SIGTERM:
      // Our parent-death signal looks like anybody's SIGTERM; where pidfd_open is refused it is all
      // we get.
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

// A child of ours ended or stopped: a worker (whose own watch tells more), or an orphan that came
// up to us.
void AgentLoop::on_child_changed() {
  heed_lease();
  suspend_with_worker();
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
  if (record.local_rank == reader_) take_terminal_from(record);
  heed_lease();
  if (worker_server_) worker_server_->drain();  // its last words
  tell_workers_of(record);
  handle(WorkerExited{record.local_rank, *record.status, record.ended,
                      asked_not_to_restart_.contains(record.local_rank)});
  if (seat_) seat_->set_alive(group_.alive);
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
  handle(Emptied{std::chrono::steady_clock::now(), progress_changed(), random_fraction()});
  check_emptied();  // the next round may have failed to start at once
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

void AgentLoop::act(const StartRound&) {
  left_overs_.reset();  // nothing of a kill of the last round may reach this one
  start_workers();
}

void AgentLoop::act(const SignalWorkers& a) { workers_.signal(a.signo); }

void AgentLoop::act(const TermStrays&) {
  if (!containment_.is_empty()) left_overs_.terminate();
}

void AgentLoop::on_left_overs_asked(const std::vector<LeftOver>& asked) {
  if (group_.alive > 0) return;
  narrator_.left_over(asked);
  for (const auto& process : asked) add_left_over(process);
}

void AgentLoop::add_left_over(const LeftOver& process) {
  if (++left_over_count_ <= LeftOvers::kNamed) left_over_.push_back(name_and_pid(process));
}

void AgentLoop::act(const KillAll&) {
  workers_.cancel_start();
  workers_.signal(SIGKILL);  // needs neither /proc nor a cgroup
  left_overs_.kill();
}

void AgentLoop::act(const ArmTimer& a) {
  auto& timer = timers_.at(static_cast<std::size_t>(a.timer));
  timer.expires_after(a.after);
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
  end_loop();
}

void AgentLoop::act(const TellFailure& a) {
  failures_.push_back(describe_failure(a.failure));
  restart_reason_ =
      "rank " + std::to_string(failures_.back().worker.rank.value()) + " " + failures_.back().cause;
  const bool nobody_waits =
      group_.size == 1 && group_.ledger.budget_used >= group_.restart.max_restarts;
  if (!nobody_waits) narrator_.failure(failures_.back());
  hint_at_stdin(failures_.back());
  // Memory stays bounded over any number of restarts: the first and the latest are kept, only those
  // with their output.
  constexpr std::size_t kKept = 32;
  ++failed_rounds_;
  if (failures_.size() > 2) {
    auto& older = failures_[failures_.size() - 2];
    older.tail.clear();
    older.error.reset();
  }
  if (failures_.size() > kKept) failures_.erase(failures_.begin() + 1);
}

void AgentLoop::act(const TellRestart& a) {
  narrator_.restart(a);
  service_.status("restart " + std::to_string(a.restart) + " of " + std::to_string(a.of) +
                  " after: " + restart_reason_);
}

void AgentLoop::act(const TellStartRetry& a) { narrator_.start_retry(a, words_for(a.failure)); }

void AgentLoop::act(const TellStopping& a) {
  narrator_.stopping(a);
  service_.stopping("stopping, asked by " + signal_name(a.signo));
}

void AgentLoop::act(const TellNoRestart& a) { narrator_.no_restart(a); }
void AgentLoop::act(const TellHurry& a) { narrator_.hurry(a); }

void AgentLoop::act(const TellKilling& a) {
  const auto alive = containment_.left_over(LeftOvers::kNamed);
  narrator_.killing(a, alive);
  if (group_.alive > 0) return;
  for (const auto& process : alive) {
    if (!left_overs_.was_asked(process.pid)) add_left_over(process);  // else it is named already
  }
}

}  // namespace acc::agent
