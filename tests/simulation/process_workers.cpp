#include "agent/translate.hpp"
#include "rendezvous/planted.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/violation.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

// Actions of the supervisor, the workers, and the guardian, which runs while the agent sleeps.
namespace acc::simulation {

using namespace rendezvous;

namespace {

constexpr Time kKillTakes{5'000'000};
constexpr Time kLeaseKillTakes{20'000'000};
constexpr Time kAfterGuardian{50'000'000};

bool ends_by_default(int signo) {
  return signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT;
}

}  // namespace

// An event may cause another one, which waits until all actions of this one are carried out.
void Process::feed(const agent::Event& event) {
  events_.push_back(event);
  if (feeds_) return;
  feeds_ = true;
  while (!events_.empty() && !ended_) {
    const auto next = std::move(events_.front());
    events_.pop_front();
    const auto before = group_.phase;
    for (const auto& action : agent::step(group_, next))
      std::visit([this](const auto& a) { act(a); }, action);
    was_told_to_end_ = was_told_to_end_ || agent::ends_for_good(group_);
    if (before != group_.phase && world_.history().is_on())
      note("supervisor: " + std::string{agent::to_string(before)} + " → " +
           std::string{agent::to_string(group_.phase)});
  }
  feeds_ = false;
}

void Process::check_emptied() {
  const bool ending =
      group_.phase == agent::Phase::stopping || group_.phase == agent::Phase::killing;
  if (!client_ || !ending || unreaped_ > 0) return;
  feed(agent::Emptied{now(), world_.random().chance(0.5), world_.random().fraction()});
}

// ---- actions ----

void Process::act(const agent::StartRound&) {
  busy_ = true;
  world_.queue().after(world_.draw_spawn_time(), [this] {
    busy_ = false;
    if (ended_) return;
    if (paused_ || sleep_ != Sleep::none) {
      spawn_waits_ = true;
      return;
    }
    spawn();
    settle();
    drain();
  });
}

// The child checks the lease as its last step before it becomes a worker.
void Process::spawn() {
  const bool is_over =
      agent::judge_lease(guardian_.terms, world_.clocks(host_)) == agent::LeaseState::over;
  const int error = is_over ? ETIME : world_.draw_start_error();
  const std::string step = is_over ? agent::kLeaseStep : "fork";
  if (error != 0) {
    note("cannot start its workers: " + step);
    feed(agent::StartFailed{{LocalRank{0}, error, step}, now()});
    return;
  }
  if (living() > 0)
    throw Violation{
        "P1", spec_.name + " starts workers beside its own of " + simulation::show(workers_epoch_)};
  if (was_told_to_end_)
    throw Violation{"stop", spec_.name + " starts workers of " + simulation::show(place_.epoch) +
                                " after it was told that the job ends"};
  note("starts ranks from " + std::to_string(place_.first_rank.value()) + " of " +
       std::to_string(place_.world_size.value()) + " in " + simulation::show(place_.epoch));
  world_.checker().started(spec_.name, place_, group_.size);
  workers_epoch_ = place_.epoch;
  ++generation_;
  is_excused_ = false;
  workers_.assign(group_.size, Worker{});
  unreaped_ = group_.size;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].rank = LocalRank{static_cast<std::uint32_t>(i)};
    const auto life = world_.draw_life(place_.world_size.value());
    plan_death(i, life.length, life.status);
  }
  feed(agent::RoundStarted{now()});
  plan_write();
}

void Process::act(const agent::SignalWorkers& signal) {
  if (signal.signo == SIGKILL) return kill_workers(kKillTakes);
  if (!ends_by_default(signal.signo)) return;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].lives || workers_[i].asked) continue;
    workers_[i].asked = true;
    if (const auto after = world_.draw_reaction())
      plan_death(i, *after, Signaled{signal.signo, false});
  }
}

void Process::act(const agent::KillAll&) { kill_workers(kKillTakes); }

void Process::act(const agent::ArmTimer& arm) {
  const auto stamp = ++next_arm_;
  armed_.at(static_cast<std::size_t>(arm.timer)) = stamp;
  world_.queue().after(std::max(arm.after, Millis{0}), [this, timer = arm.timer, stamp] {
    dispatch([this, timer, stamp] {
      if (armed_.at(static_cast<std::size_t>(timer)) == stamp)
        feed(agent::TimerFired{timer, now()});
    });
  });
}

void Process::act(const agent::DisarmTimer& disarm) {
  armed_.at(static_cast<std::size_t>(disarm.timer)) = 0;
}

void Process::act(const agent::Finish& finish) {
  if (finish_) return;
  finish_ = finish;
  is_leaving_ = true;
}

agent::NodeFacts Process::node_facts() const {
  return {{place_.first_rank, group_.size}, spec_.name};
}

void Process::act(const agent::ReportFailed& report) {
  carry_out(client_->worker_failed(agent::failure_of(report.failure, node_facts(), now()), now()));
}

void Process::act(const agent::ReportStartFailed& report) {
  carry_out(client_->worker_failed(agent::failure_of(report.failure, node_facts()), now()));
}

void Process::act(const agent::ReportCompleted& report) {
  note("its workers are done");
  carry_out(client_->workers_completed(report.progress, now()));
}

void Process::act(const agent::ReportStopped& report) {
  carry_out(client_->workers_stopped(report.progress, now()));
}

void Process::act(const agent::ReportUnkillable&) {
  carry_out(client_->worker_failed(agent::unkillable_failure(node_facts()), now()));
}

void Process::act(const agent::AskJob& ask) { carry_out(client_->signal_received(ask.signo)); }
void Process::act(const agent::AskRestart&) { carry_out(client_->restart_asked()); }

// ---- workers ----

std::size_t Process::living() const {
  return static_cast<std::size_t>(std::ranges::count(workers_, true, &Worker::lives));
}

void Process::plan_death(std::size_t index, Time after, const ExitStatus& status) {
  world_.queue().after(after, [this, generation = generation_, index, status] {
    worker_dies(generation, index, status);
  });
}

void Process::worker_dies(std::uint64_t generation, std::size_t index, const ExitStatus& status) {
  if (generation != generation_ || !workers_[index].lives) return;
  const auto* killed = std::get_if<Signaled>(&status);
  const bool is_killed = killed != nullptr && killed->signo == SIGKILL;
  if (is_machine_asleep() || (sleep_ == Sleep::stopped && !is_killed)) {
    deaths_.emplace_back(
        [this, generation, index, status] { worker_dies(generation, index, status); });
    return;
  }
  workers_[index].lives = false;
  if (!is_excused_ && !is_uncounted_) world_.checker().worker_ended(workers_epoch_);
  const Instant when = now();
  dispatch([this, generation, index, status, when] {
    if (generation != generation_) return;
    --unreaped_;
    if (world_.history().is_on())
      note("local rank " + std::to_string(index) + " " + describe(status));
    // Some fail as if a call of theirs had failed for another rank's end; that one may not follow.
    const auto* exited = std::get_if<Exited>(&status);
    const bool peer_failed = exited != nullptr && exited->code % 2 == 1;
    feed(agent::WorkerExited{LocalRank{static_cast<std::uint32_t>(index)}, status, when, false,
                             peer_failed});
  });
}

void Process::kill_workers(Time within) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].lives) continue;
    if (within == Time{0}) {
      worker_dies(generation_, i, Signaled{SIGKILL, false});
    } else {
      plan_death(i, between(world_.random(), Time{0}, within), Signaled{SIGKILL, false});
    }
  }
}

void Process::crash_worker() {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].lives) continue;
    note("loses a worker to SIGSEGV");
    worker_dies(generation_, i, Signaled{SIGSEGV, false});
    return;
  }
}

// ---- the guardian: checks again only when the lease known to it would be over ----

void Process::watch_lease() {
  if (!guardian_.alive || guardian_.terms.ends_ns == 0) return;
  const Instant ends{std::chrono::nanoseconds{guardian_.terms.ends_ns}};
  const Time soonest = world_.queue().now() + Time{1'000'000};  // other clocks may disagree
  const Time at = std::max(world_.clock(host_).when(ends), soonest);
  if (guardian_.looks_at && *guardian_.looks_at <= at) return;
  guardian_.looks_at = at;
  world_.queue().at(at, [this, at] {
    if (guardian_.looks_at != at) return;  // a shorter lease was set in between
    guardian_.looks_at.reset();
    check_lease();
  });
}

void Process::check_lease() {
  if (ended_ || !guardian_.alive || sleep_ != Sleep::none) return;  // thaw() checks
  using agent::LeaseState;
  const Clocks clocks = world_.clocks(host_);
  switch (agent::judge_lease(guardian_.terms, clocks)) {
    case LeaseState::none:
      return;
    case LeaseState::over:
      return lease_is_over();
    case LeaseState::doubted: {
      const Instant soon = now() + spec_.membership.timings.confirmation();
      guardian_.terms.ends_ns = std::min(guardian_.terms.ends_ns,
                                         std::chrono::nanoseconds{soon.time_since_epoch()}.count());
      guardian_.terms.ahead_ns = clocks.ahead().count();
      break;
    }
    case LeaseState::holds:
      break;
  }
  watch_lease();
}

void Process::lease_is_over() {
  if (!guardian_.in_use) return;
  note("its guardian kills: the lease is over");
  guardian_.in_use = false;
  ++world_.stats().leases_over;
  // Before the deaths that it causes.
  dispatch([this] { feed(agent::LeaseOver{now()}); });
  kill_workers(kLeaseKillTakes);
}

// ---- the kernel: ends the workers even of a frozen node (agent/lease_timer) ----

void Process::plan_lease_timer() {
  if (guardian_.timer_is_planned || guardian_.terms.ends_ns == 0 || planted::no_lease_timer) return;
  guardian_.timer_is_planned = true;
  const Instant ends{std::chrono::nanoseconds{guardian_.terms.ends_ns} + kAfterGuardian};
  const Time soonest = world_.queue().now() + Time{1'000'000};
  world_.queue().at(std::max(world_.clock(host_).when(ends), soonest), [this] {
    guardian_.timer_is_planned = false;
    if (ended_ || is_machine_asleep()) return;  // thaw() checks
    check_lease_timer();
  });
}

void Process::check_lease_timer() {
  if (planted::no_lease_timer || !guardian_.in_use) return;
  auto terms = guardian_.terms;
  const bool is_guardian_there = guardian_.alive && sleep_ == Sleep::none;
  if (is_guardian_there ||
      agent::judge_lease(terms, world_.clocks(host_)) != agent::LeaseState::over)
    return plan_lease_timer();
  if (living() > 0) {
    note("the kernel kills its workers: the lease is over");
    ++world_.stats().kernel_kills;
  }
  guardian_.in_use = false;
  dispatch([this] { feed(agent::LeaseOver{now()}); });
  kill_workers(Time{0});
}

}  // namespace acc::simulation
