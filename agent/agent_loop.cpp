#include "agent/agent_loop.hpp"

#include "agent/fanout/orders.hpp"
#include "agent/job_folder_notes.hpp"
#include "agent/job_name.hpp"
#include "agent/lost_ranks.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/random.hpp"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

namespace acc::agent {

namespace {

bool wants_color(const OutputPlan& output, const ConsoleFacts& console) {
  if (output.color != Choice::automatic) return output.color == Choice::yes;
  return console.err_is_tty && !console.no_color;
}

std::optional<LocalRank> reader_of(const JobPlan& plan) {
  return plan.local_world_size == 1 ? std::optional{LocalRank{0}} : plan.stdin_rank;
}

bool has_other_nodes(const JobPlan& plan) {
  return plan.kind == JobKind::elastic && plan.cluster.several();
}

// Machines may share the folder for logs.
std::string node_of(const JobPlan& plan) {
  if (!has_other_nodes(plan)) return {};
  return plan.cluster.node_name.empty() ? host_name() : plan.cluster.node_name;
}

std::string watched_node(const JobPlan& plan) {
  const auto node = node_of(plan);
  return node.empty() ? host_name() : node;
}

// A compiled program needs no time before it can report its own error.
bool is_interpreter(const std::string& program) {
  const auto name = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with("python") || name.starts_with("pypy");
}

}  // namespace

AgentLoop::AgentLoop(const JobPlan& plan, const GuardianLink& guardian,
                     const DescriptorLimit& limit)
    : AgentLoop{plan, guardian, limit, random_name()} {}

AgentLoop::AgentLoop(const JobPlan& plan, const GuardianLink& guardian,
                     const DescriptorLimit& limit, const std::string& random)
    : plan_{plan},
      guardian_{guardian},
      console_{detect_console()},
      job_id_{plan.cluster.job + '-' + random},
      output_{io_, plan_.output, plan_.local_world_size, console_},
      messages_{[this](std::string_view line) { output_.say(line); }, plan_.output,
                wants_color(plan_.output, console_)},
      run_folder_{plan_.output, run_id_of(plan_.cluster.job, std::getenv(kJobFolderVariable)),
                  node_of(plan_), random},
      terms_{plan_},
      timers_{io_,
              [this](Timer which) {
                if (!ending_.is_decided()) feed(TimerFired{which, clock_now()});
              }},
      workers_{io_, containment_, output_, worker_hooks()},
      left_overs_{io_, containment_, left_over_hooks()},
      terminal_{io_, guardian, reader_of(plan), workers_, terminal_hooks()},
      starter_{{plan_, guardian_, console_, limit, containment_, output_, run_folder_, messages_,
                preloader_}},
      recorder_{plan_, workers_, output_, run_folder_, containment_},
      watch_{{io_, plan_, workers_, messages_, run_folder_, job_id_, watched_node(plan)},
             watch_hooks()},
      status_{{io_, plan_, job_id_, guardian.pid, group_, terms_, workers_, watch_, run_folder_,
               timers_, output_, [this] { return node_name(); }}},
      health_{io_, plan_, guardian, group_, health_hooks()},
      telemetry_{{io_, plan_, group_, messages_, output_, status_, health_}},
      signals_{io_, group_, guardian.pid, signal_hooks()},
      parents_{io_, guardian, parent_hooks()},
      course_{{io_, guardian.pid, reader_of(plan), group_, signals_, containment_, starter_,
               messages_, terms_, recorder_, telemetry_.events(),
               [this](LocalRank local) {
                 return services_ ? services_->no_restart_reason(local) : std::string{};
               }}},
      control_{io_, group_, messages_, control_hooks()},
      ending_{{plan_, job_id_, guardian_, group_, terms_, starter_, recorder_, watch_, messages_,
               course_, telemetry_, output_, wants_color(plan_.output, console_),
               [this] { return signals_.end_asked(); }}} {
  group_.size = plan_.local_world_size;
  group_.restart = plan_.restart;
  group_.stop = plan_.stop;
  output_.set_job(job_id_, plan_.role);
  output_.on_degraded([this](const Losses& losses) { course_.output_degraded(losses); });
  log::set_writer([this](std::string_view line) { output_.say(line); });
  if (limit.before()) workers_.spawner().set_child_nofile(*limit.before());
  if (guardian_.board != nullptr) workers_.spawner().heed_lease(&guardian_.board->lease_ends_ns);
}

AgentLoop::~AgentLoop() {
  log::set_writer([](std::string_view) {});
}

int AgentLoop::run() {
  signals_.watch();
  parents_.begin(plan_.life_line);
  course_.begin();
  boost::asio::post(io_, [this] { begin_job(); });
  boost::asio::post(io_, [this] { open_control(); });
  io_.run();
  return ending_.conclude(link_ ? &link_->job() : nullptr);
}

// ---- what the parts tell the loop ----

WorkerGroup::Hooks AgentLoop::worker_hooks() {
  return {[this](const auto& record) { on_exit(record); },
          [this] { signals_.take_arrived(); },
          [this](const auto& failure) { on_started(failure); },
          [this](const auto& failure) {
            handle(StartFailed{failure, clock_now()});
          },
          [this](pid_t pid) {
            if (link_) link_->worker_made(pid);
          },
          [this](const auto& record) { messages_.traced_death(record); },
          [this](const auto& ranks, const auto& programs) {
            messages_.programs_awaited(ranks, programs);
          }};
}

LeftOvers::Hooks AgentLoop::left_over_hooks() {
  return {[this](pid_t pid) { return workers_.is_living_worker(pid); },
          [this](pid_t pid) { return workers_.programs().has_had_signal(pid); },
          [this](const auto& asked) { course_.left_overs_asked(asked); }};
}

LentTerminal::Hooks AgentLoop::terminal_hooks() {
  return {[this] { signals_.stop_from_terminal(); }, [this] { messages_.kept_interrupt(); }};
}

JobWatch::Hooks AgentLoop::watch_hooks() {
  JobWatch::Hooks hooks;
  hooks.on_hang = [this](const auto& hang) { on_hang(hang); };
  hooks.on_look = [this] {
    recorder_.look_for_oom_kills();
    show_progress();
  };
  hooks.on_straggler = [this](Rank rank, const auto& found) {
    telemetry_.events().straggler(group_.round,
                                  {rank, found.steps_per_second, found.times_slower, found.since});
  };
  if (has_other_nodes(plan_)) {
    hooks.announce_hang = [this] { link_->announce_hang(); };
    hooks.compare = [this](const auto& mine, auto done) { link_->compare(mine, std::move(done)); };
    hooks.tell_stalled = [this](auto on_all) { link_->tell_stalled(std::move(on_all)); };
    hooks.section_signs = {[this] { link_->count_section_signs(1, [](SectionSigns::Count) {}); },
                           [this](auto done) { link_->count_section_signs(0, std::move(done)); }};
    hooks.exchange_step = [this](auto expected, auto value, auto done) {
      link_->exchange_step(std::move(expected), std::move(value), std::move(done));
    };
  }
  return hooks;
}

NodeHealth::Hooks AgentLoop::health_hooks() {
  return {[this](const health::Finding& finding, bool is_shown) {
            telemetry_.events().health(finding);
            if (is_shown) messages_.warning("health of this node: " + finding.words);
          },
          [this](const std::string& why) { leave_unfit(why); }};
}

JobSignals::Hooks AgentLoop::signal_hooks() {
  return {
      [this](const auto& event) { feed(event); },
      [this] { on_child_changed(); },
      [this](int signo) { on_job_control(signo); },
      [this] {
        terminal_.pressed();
        feed(TerminalInterrupted{clock_now()});
      },
      [this] { return is_guardian_gone(guardian_); },
      [this](int signo, const auto& done) {
        if (watch_.stacks().is_running()) return false;
        messages_.announce(signal_name(signo) + ": collecting the workers' stacks, then stopping");
        collect_stacks({signal_name(signo) + " to acc-launch", evidence::Purpose::end},
                       [done](const auto&) { done(); });
        return true;
      }};
}

ParentWatch::Hooks AgentLoop::parent_hooks() {
  const auto on_lost = [this](const std::string& why) {
    if (!why.empty() && !ending_.is_decided()) {
      ending_.set_reason(why);
      messages_.warning(why + ": stopping the workers here");
    }
    feed(GuardianLost{clock_now()});
  };
  const auto on_ask = [this] { output_.say(encode(Here{}, plan_.life_line->token)); };
  return {on_lost, [this](int signo) { signals_.take(signo); }, on_ask};
}

ControlRequests::Hooks AgentLoop::control_hooks() {
  return {[this](const auto& event) { feed(event); },
          [this](const auto& wanted) { return status_.view(wanted); },
          [this](auto answer) { link_->table(std::move(answer)); },
          [this](const control::Output& wanted) {
            auto kept = output_.kept_output(wanted.local_rank, wanted.is_stderr, wanted.from);
            return control::OutputView{group_.round, kept.from, kept.end, std::move(kept.text),
                                       kept.is_captured};
          },
          [this](const auto& question, auto done) { collect_stacks(question, std::move(done)); },
          [this](const auto& reason) { terms_.set_restart_reason(reason); },
          [this](int signo) {
            // What ends the job then isn't a Ctrl-C that a worker used before for its own purposes.
            if (signo == SIGINT && guardian_.board != nullptr)
              guardian_.board->worker_was_interrupted = false;
            signals_.take(signo);
          }};
}

CoordinatorLink::Hooks AgentLoop::link_hooks() {
  std::function<void()> on_hang;
  if (plan_.hang.is_on()) on_hang = [this] { watch_.look_for_others(); };
  return {[this](const auto& event) { feed(event); },
          [this](const LeaseOver& event) { handle(event); },
          [this](const std::string& why) { ending_.set_reason(why); },
          [this](const auto& lost) {
            if (services_) services_->tell_lost(lost);
          },
          [this](Millis ahead) { health_.note_clock_skew(ahead); },
          [this](bool is_here) {
            if (plan_.stop.is_from_one_launch) messages_.tell_job(is_here);
          },
          [this](Instant at) { watch_.round_failed_elsewhere(at); },
          std::move(on_hang)};
}

// ---- the start ----

void AgentLoop::begin_job() {
  open_preloader();
  if (has_other_nodes(plan_)) join_job();
  telemetry_.open(
      job_id_, [this] { return node_name(); }, guardian_.pid);
  const auto& output = plan_.output;
  status_.line().open(!output.quiet && !console_.no_color && output.color != Choice::no &&
                          !output.is_reported_elsewhere,
                      group_.phase);
  if (!link_) handle(Began{clock_now()});
}

// The health is checked before this node takes a place: a spare needs none of its time.
void AgentLoop::join_job() {
  constexpr Millis kStartupGrace{500};
  group_.coordinated = true;
  if (is_interpreter(plan_.command.front())) group_.startup_grace = kStartupGrace;
  link_ = std::make_unique<CoordinatorLink>(
      CoordinatorLink::Parts{io_, plan_, guardian_, recorder_, terms_, starter_, course_,
                             watch_.stacks()},
      link_hooks());
  health_.check_before_round(
      [this](const std::string& why) { why.empty() ? link_->join() : leave_unfit(why); });
}

// After the first workers are on their way: a program that lives for a moment must not wait for it.
void AgentLoop::open_control() {
  if (ending_.is_decided()) return;
  auto place = find_control_place(std::getenv("ACC_JOB_FOLDER"),
                                  control_folders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                                  job_name(plan_), guardian_.pid != 0 ? guardian_.pid : ::getpid());
  const auto listening = place ? control_.listen(std::move(*place), [this] { open_control(); })
                               : Result<void>{place.error()};
  if (listening) return;
  const auto& why = listening.error();
  log::info("no_control_socket", {{"job", job_id_}, {"why", why.what}});
  if (why.code == Errc::not_permitted)
    messages_.warning("acc-ctl can't reach this job: " + why.what +
                      ": name a folder of your own in XDG_RUNTIME_DIR");
}

// ---- events in ----

void AgentLoop::handle(const Event& event) {
  const Phase before = group_.phase;
  const auto actions = step(group_, event);
  if (before != group_.phase) status_.line().phase_changed(group_.phase);
  if (log::enabled(log::Level::debug) && before != group_.phase) {
    log::debug("phase", {{"job", job_id_},
                         {"round", group_.round.value()},
                         {"from", to_string(before)},
                         {"to", to_string(group_.phase)}});
  }
  if (before == Phase::running && group_.phase != Phase::running) {
    const bool is_for_another = group_.orders.stop && !group_.orders.stop->for_good;
    watch_.round_ended(
        group_.first_failure || group_.restart_asked || group_.lease_over || is_for_another,
        lost_since(group_, clock_now()));
    if (link_) link_->round_ended(workers_.records());
    if (preloader_) preloader_->pause_ahead();
  }
  for (const auto& action : actions) carry_out(action);
  ending_.spare_stopping_workers();
}

void AgentLoop::feed(const Event& event) {
  if (ending_.is_decided() && link_ && asks_for_end(event)) return link_->job().resign();
  handle(event);
  check_emptied();
}

void AgentLoop::on_job_control(int signo) {
  if (signo == SIGTSTP) {
    watch_.suspended();
    output_.suspended();
  }
  if (signo == SIGCONT && terminal_.lend_again()) group_.terminal.rank = terminal_.reader();
  if (signo == SIGCONT && terminal_.is_shared()) group_.terminal.rank.reset();
  if (signo == SIGWINCH) output_.window_changed();
  workers_.signal(signo);
  if (signo != SIGCONT) return;
  watch_.resumed(clock_now());
  output_.resumed();
  const auto start = starter_.take_postponed();
  if (start && group_.starting && group_.round == start->round) make_workers(*start);
}

// A child exited or stopped: a worker, whose pidfd reports its exit, or an orphan that was
// reparented to us.
void AgentLoop::on_child_changed() {
  heed_lease();
  if (group_.phase == Phase::running && terminal_.look_for_stop())
    group_.terminal.rank = terminal_.reader();
  if (group_.phase == Phase::killing) {
    left_overs_.kill();  // those just killed may have left new orphans
  } else if (group_.phase == Phase::stopping && group_.left_overs_due) {
    left_overs_.terminate();
  }
  look_for_exits();
}

// One look for all exits of a turn of the loop: the kernel walks through all children for it.
void AgentLoop::look_for_exits() {
  if (look_is_due_) return;
  look_is_due_ = true;
  boost::asio::post(io_, [this] {
    look_is_due_ = false;
    if (!workers_.reap_orphans()) return look_for_exits();
    check_emptied();
  });
}

// The round is over when no process of it is left, also none that went its own way.
void AgentLoop::check_emptied() {
  const bool is_ending = group_.phase == Phase::stopping || group_.phase == Phase::killing;
  if (ending_.is_decided() || !is_ending || !containment_.is_empty()) return;
  output_.end_round();
  left_overs_.reset();
  const bool progress = starter_.progress_changed() || watch_.saw_checkpoint();
  handle(Emptied{clock_now(), progress, random_fraction()});
  check_emptied();  // the next round may have failed to start at once
}

void AgentLoop::on_started(const std::optional<StartFailure>& failure) {
  const auto now = clock_now();
  if (failure) {
    course_.start_failed(*failure);
    return feed(StartFailed{*failure, now});
  }
  log::info("round_started",
            {{"job", job_id_}, {"round", group_.round.value()}, {"workers", group_.size}});
  telemetry_.round_started(terms_, workers_.records());
  if (link_ && telemetry_.wants_nodes())
    link_->table([this](const auto& table) { telemetry_.events().nodes(table); });
  health_.round_started();
  handle(RoundStarted{now});
  // On several nodes another round may follow at any time, as nodes join and leave.
  if (preloader_ && (link_ || may_restart(group_.restart, group_.ledger)))
    preloader_->fork_ahead(group_.size);
  watch_.round_started(services_->heartbeats(), group_.round, now);
  if (link_) link_->round_started();
  // Ctrl-Z while they were being made: it reached only those that were there.
  if (watch_.is_suspended() && !link_) workers_.signal(SIGTSTP);
  if (group_.terminal.rank) terminal_.lent();
  forget_last_attempt();
  course_.round_started();
  // Of others before us: not in the way of the start.
  if (group_.round == Round{0}) boost::asio::post(io_, sweep_dead_cgroups);
}

// The other workers learn of a lost one before the supervisor handles its exit, so that they know
// why they are stopped.
void AgentLoop::on_exit(const WorkerRecord& record) {
  log::info("worker_exited", {{"job", job_id_},
                              {"round", group_.round.value()},
                              {"rank", record.rank.value()},
                              {"local_rank", record.local_rank.value()},
                              {"pid", record.pid},
                              {"status", describe(*record.status)}});
  telemetry_.events().worker_ended(group_.round, record);
  if (record.local_rank == terminal_.reader())
    terminal_.take_back(record, group_.terminal.rank == record.local_rank);
  heed_lease();
  services_->drain();  // its last message
  if (!is_success(*record.status) && !record.asked_to_end)
    services_->tell_lost({lost_here(record, recorder_.oom_facts(*record.status, record.ended))});
  const auto beat = services_->heartbeats().beat(record.local_rank);
  handle(WorkerExited{record.local_rank, *record.status, record.ended,
                      services_->asked_not_to_restart(record.local_rank),
                      beat && beat->peer_failed});
  course_.worker_ended();
  look_for_exits();
}

void AgentLoop::on_hang(const JobWatch::Hang& hang) {
  recorder_.note_stacks(hang.file);
  feed(HangFound{hang.rank, hang.cause, clock_now()});
}

void AgentLoop::leave_unfit(const std::string& why) {
  const auto reason = "this node is unfit: " + why;
  ending_.set_reason(reason);
  messages_.warning(reason + "; it leaves the job");
  feed(JobClosed{{Outcome::unfit, to_int(ExitCode::unfit)}, clock_now()});
}

// ---- actions out ----

void AgentLoop::carry_out(const Action& action) {
  std::visit(
      [this](const auto& a) {
        if constexpr (requires { course_.tell(a); }) {
          course_.tell(a);
        } else if constexpr (requires { link_->report(a); }) {
          link_->report(a);
        } else {
          act(a);
        }
      },
      action);
}

// On several nodes the check is over by now: a node that has a place and doesn't start costs all
// the others a round.
void AgentLoop::act(const StartRound& a) {
  if (link_) return begin_round(a);
  health_.check_before_round([this, a](const std::string& why) {
    if (why.empty()) return begin_round(a);
    on_started(
        StartFailure{LocalRank{0}, kUnfitNode, "health check", "this node is unfit: " + why});
  });
}

void AgentLoop::open_preloader() {
  if (plan_.preload.modules.empty()) return;
  auto program = starter_.preload_program(job_id_);
  if (!program) return;  // the start of the first round says so
  preloader_ = std::make_unique<Preloader>(
      Preloader::Tools{io_, workers_.spawner(), containment_,
                       [this](const std::string& text) { messages_.warning(text); },
                       [this](const std::string& text) { messages_.note(text); },
                       [this] { note_cgroup(guardian_, containment_.cgroup_path()); }},
      plan_.preload);
  preloader_->start(std::move(*program));
}

void AgentLoop::begin_round(const StartRound& a) {
  if (!preloader_) return make_workers(a);
  preloader_->when_settled([this, a] { make_workers(a); });
}

// A job on several nodes can't be suspended: the other nodes would wait for this one.
void AgentLoop::make_workers(const StartRound& a) {
  if (watch_.is_suspended() && !link_) return starter_.postpone(a);
  left_overs_.reset();  // nothing of a kill of the last round may reach this one
  if (!services_) {
    services_ = std::make_unique<WorkerServices>(
        io_, plan_, job_id_, link_ ? &link_->job() : nullptr, messages_,
        [this](Rank rank, int code) { workers_.abort(rank, code); });
  }
  const bool lends_terminal = terminal_.is_lent_at_start();
  group_.terminal.rank = lends_terminal ? terminal_.reader() : std::nullopt;
  if (link_) link_->begin_round();
  recorder_.begin_round(a.round);
  auto prepared = starter_.prepare(
      {a.round, job_id_, terms_.place(), group_.ledger.restarts, terms_.max_restarts(),
       terms_.restart_reason(), terminal_.reader(), lends_terminal},
      *services_);
  if (const auto* failure = std::get_if<StartFailure>(&prepared)) return on_started(*failure);
  workers_.start(std::move(std::get<Launch>(prepared)));
}

// Two presses in a worker's terminal: it was sent SIGINT by the kernel. One of ours, too, could
// hide the next press from the watch: a signal that is pending is not queued again.
void AgentLoop::act(const SignalWorkers& a) {
  if (signals_.is_of_two_presses() && a.signo == SIGINT) return;
  const bool asks_end = group_.phase == Phase::stopping;  // else it is passed on, and ends nothing
  workers_.signal(a.signo, asks_end ? WorkerGroup::Asks::an_end : WorkerGroup::Asks::nothing,
                  signals_.delivered(a.signo));
}

void AgentLoop::act(const TerminateEscaped&) {
  if (!containment_.is_empty()) left_overs_.terminate();
}

void AgentLoop::act(const KillAll&) {
  if (!link_) health_.cancel();  // one before a round that won't be
  if (preloader_) preloader_->forget_waiter();
  workers_.cancel_start();
  workers_.signal(SIGKILL);  // needs neither /proc nor a cgroup
  left_overs_.kill();
}

void AgentLoop::act(const ArmTimer& a) {
  timers_.arm(a.timer, a.timer == Timer::left_over ? left_over_patience(a.after) : a.after);
}

void AgentLoop::act(const DisarmTimer& a) { timers_.disarm(a.timer); }

void AgentLoop::act(const Finish& a) {
  ending_.decide(a.end);
  if (preloader_) preloader_->stop();
  const bool keeps_coordinator = link_ && a.end.outcome == Outcome::unfit;
  if (!keeps_coordinator) signals_.stop();
  if (services_) services_->close();
  health_.close();
  control_.close();
  status_.close();
  telemetry_.close();
  if (!link_) return io_.stop();
  link_->job().leave(ending_.words_for_others(), keeps_coordinator, [this] {
    signals_.stop();
    io_.stop();
  });
}

// The round is over, and the node offers itself for the next one. Unfit, it leaves instead: then
// the coordinator gives its place to a spare.
void AgentLoop::act(const ReportStopped& a) {
  if (ends_for_good(group_) || group_.lease_over) {
    health_.cancel();
    return link_->job().report_stopped(a.progress);
  }
  health_.check_before_round([this, progress = a.progress](const std::string& why) {
    why.empty() ? link_->job().report_stopped(progress) : leave_unfit(why);
  });
}

void AgentLoop::act(const AskRestart&) { link_->job().ask_restart(control_.take_restart_answer()); }

// ---- helpers ----

void AgentLoop::forget_last_attempt() {
  if (run_folder_.forget_some(group_.round)) return;
  boost::asio::post(io_, [this] { forget_last_attempt(); });
}

void AgentLoop::heed_lease() {
  if (link_) link_->heed_lease();
}

void AgentLoop::show_progress() {
  auto& line = status_.line();
  if (group_.phase != Phase::running) return;
  if (!line.shows_progress() && !telemetry_.events().is_open()) return;
  const auto workers = status_.progress();
  telemetry_.progress(group_.round, workers);
  if (line.shows_progress()) line.show_progress(progress_text(workers));
}

void AgentLoop::collect_stacks(const evidence::Question& question,
                               StackCollection::Collected done) {
  if (link_) return link_->collect_stacks(question, std::move(done));
  watch_.stacks().collect({.question = question}, std::move(done));
}

std::string AgentLoop::node_name() const { return link_ ? link_->job().node_name() : host_name(); }

}  // namespace acc::agent
