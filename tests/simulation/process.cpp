#include "tests/simulation/process.hpp"

#include "tests/simulation/violation.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <csignal>

// Life of a process: delivery of events, timers, end.
namespace acc::simulation {

using namespace rendezvous;

namespace {

/// A deadline further away than anything in a job is not a deadline.
constexpr auto kLongestWait = std::chrono::hours{1};

}  // namespace

Process::Process(World& world, HostId host, ProcessSpec spec)
    : world_{world}, host_{host}, spec_{std::move(spec)}, clocks_{world.clocks(host)} {
  group_.coordinated = true;
  group_.stop = spec_.stop;
  if (spec_.client) group_.size = spec_.client->self.slots;
}

Instant Process::now() const { return world_.clock(host_).at(world_.queue().now()); }

void Process::note(const std::string& what) const {
  world_.history().add(world_.queue().now(), spec_.name, what);
}

// Many attempts with the same outcome are logged once.
void Process::note_dial(const std::string& outcome) {
  if (!world_.history().is_on() || last_dial_ == outcome) return;
  last_dial_ = outcome;
  note(outcome);
}

void Process::begin() {
  if (spec_.listens) world_.network().listen(host_, this);
  if (spec_.serves_seed) {
    membership_.emplace(spec_.membership, now());
    is_successor_ = false;
    membership_id_ = world_.next_membership();
  }
  if (spec_.client) {
    client_.emplace(*spec_.client, now());
    feed(agent::Began{now()});
    if (spec_.by_etcd) client_->set_address_here(world_.address(host_));
    carry_out(client_->begin(now()));
  }
  settle();
}

// ---- delivery of events ----

void Process::dispatch(Call call) {
  if (ended_) return;
  if (is_frozen()) {
    inbox_.push_back(std::move(call));
    return;
  }
  call();
  settle();
}

void Process::settle() {
  if (ended_) return;
  check_emptied();
  if (is_leaving_) exit();
  if (ended_ || rearms_) return;
  rearms_ = true;
  // After all other events of this time.
  world_.queue().after(Time{0}, [this] {
    rearms_ = false;
    if (!ended_) plan_wake();
  });
}

void Process::drain() {
  while (!inbox_.empty() && !is_frozen() && !ended_) {
    const Call call = std::move(inbox_.front());
    inbox_.pop_front();
    call();
    settle();
  }
}

void Process::pause() {
  if (ended_ || paused_) return;
  note("is stopped (SIGSTOP)");
  paused_ = true;
}

void Process::resume() {
  if (ended_ || !paused_) return;
  note("goes on (SIGCONT)");
  paused_ = false;
  if (spawn_waits_ && sleep_ == Sleep::none) {
    spawn_waits_ = false;
    spawn();
    settle();
  }
  if (is_frozen()) return;
  look_at_clocks();
  // The order in which timers and sockets are served is unspecified.
  if (!is_frozen() && world_.random().chance(0.5)) tick();
  drain();
  if (!ended_ && !is_frozen()) tick();
}

// Assigned, or ordered to start its workers and at it: a start that failed is tried again.
bool Process::is_starting() const {
  if (!client_) return false;
  const auto state = client_->state();
  return state == NodeState::assigned || (state == NodeState::running && living() == 0);
}

bool Process::freeze(Sleep how) {
  if (ended_ || sleep_ != Sleep::none) return false;
  // Paused with an answer in its socket, or a start: the window documented in docs/operations.md.
  if (how == Sleep::paused && (is_frozen() || is_starting())) return false;
  note(how == Sleep::stopped     ? "is frozen with all its workers"
       : how == Sleep::suspended ? "is on a machine that is suspended"
                                 : "is on a machine that is paused");
  sleep_ = how;
  if (is_machine_asleep() && !is_excused_) world_.checker().fell_asleep(workers_epoch_, living());
  is_excused_ = is_excused_ || how == Sleep::paused;
  return true;
}

// The kernel runs first: its timers, then earlier kills. Whether workers or agent run next is
// unspecified.
void Process::thaw() {
  if (ended_ || sleep_ == Sleep::none) return;
  note("wakes up");
  is_uncounted_ = is_machine_asleep() && !is_excused_;
  if (sleep_ == Sleep::paused) uncounted_until_ = world_.queue().now();
  sleep_ = Sleep::stopped;
  check_lease_timer();
  sleep_ = Sleep::none;
  if (std::exchange(is_uncounted_, false))
    world_.checker().woke_up(spec_.name, workers_epoch_, living());
  for (const auto& death : std::exchange(deaths_, {})) death();
  check_lease();
  if (spawn_waits_ && !paused_) {
    spawn_waits_ = false;
    spawn();
    settle();
  }
  if (ended_ || is_frozen()) return;
  look_at_clocks();
  if (world_.random().chance(0.5)) tick();
  drain();
  if (!ended_ && !is_frozen()) tick();
}

void Process::expect_confirmation() {
  if (ended_ || !guardian_.alive || living() == 0) return;
  constexpr Time kMargin{100'000'000};
  const Time limit = Time{spec_.membership.timings.confirmation()} * 101 / 100 + kMargin;
  expect_confirmation_by(world_.clocks(host_).boot + limit);
}

// By the clock of its own machine: another pause, too short to be noticed, stops that as well.
void Process::expect_confirmation_by(Instant due) {
  const auto left = due - world_.clocks(host_).boot;
  const auto wait = [this, due, generation = generation_, renewals = renewals_] {
    const bool is_here = !ended_ && sleep_ == Sleep::none && guardian_.alive;
    if (!is_here || generation != generation_ || renewals != renewals_ || living() == 0) return;
    if (world_.clocks(host_).boot < due) return expect_confirmation_by(due);
    throw Violation{"P1", spec_.name + " was paused, its clocks know it, and its workers live on"};
  };
  world_.queue().after(std::chrono::ceil<Time>(left), wait);
}

// As RendezvousClient and Coordinator do before each event.
void Process::look_at_clocks() {
  if (ended_ || is_frozen()) return;
  if (!clocks_.look(world_.clocks(host_))) return;
  note("its clocks are in doubt");
  ++world_.stats().doubts;
  if (client_) carry_out(client_->clock_doubted(now()));
  if (membership_ && !ended_) carry_out(membership_->clock_doubted(membership_time()));
  if (writer_.question != 0) ask_to_write();
  settle();
}

// ---- timers ----

void Process::plan_wake() {
  Instant next = Instant::max();
  if (client_ && client_->phase() != LinkPhase::ended) {
    next = client_->next_deadline();
    if (next - now() > kLongestWait)
      throw Violation{"liveness", spec_.name + " waits for ever: " + state()};
  }
  if (membership_) next = std::min(next, membership_->next_deadline());
  if (leadership_) next = std::min(next, leadership_->next_deadline());
  if (next == Instant::max()) return;
  const Time at = std::max(world_.clock(host_).when(next), world_.queue().now() + Time{1'000});
  if (at >= wake_at_) return;  // the earlier one plans the next
  wake_at_ = at;
  world_.queue().at(at, [this, at] {
    if (wake_at_ != at) return;
    wake_at_ = kNever;
    wake();
  });
}

void Process::wake() {
  if (ended_) return;
  if (is_frozen()) return;  // resume() ticks
  const Instant at = now();
  const bool is_due = (client_ && client_->next_deadline() <= at) ||
                      (membership_ && membership_->next_deadline() <= at) ||
                      (leadership_ && leadership_->next_deadline() <= at);
  if (is_due) {
    world_.count_tick(host_);
    tick();
  }
  settle();
}

void Process::tick() {
  if (client_) carry_out(client_->tick(now()));
  if (leadership_ && !ended_) carry_out(leadership_->tick(now()));
  if (membership_ && !ended_) carry_out(membership_->tick(membership_time()));
  settle();
}

// ---- end ----

void Process::close_all(bool died) {
  auto& network = world_.network();
  const auto close = [&](End end) { died ? network.abort(end) : network.close(end); };
  if (uplink_) close(*uplink_);
  if (home_link_) close(*home_link_);
  for (const auto& [end, peer] : peers_) close(end);
}

// Finish was ordered and carried out: the process exits by itself, and its data is delivered.
void Process::exit() {
  if (ended_) return;
  if (client_) carry_out(client_->leaves(agent::leave_words(finish_->end.outcome, {}), now()));
  note("ends: " + std::string{to_string(finish_->end.outcome)} + ", code " +
       std::to_string(finish_->end.exit_code));
  // A process that leaves in the middle of the job sends nothing to etcd.
  if (leadership_ && job_over_) carry_out(leadership_->end(true, now()));
  ended_ = true;
  kill_workers(Time{0});
  world_.network().listen(host_, nullptr);
  close_all(false);
  world_.process_ended(*this);
}

void Process::die(bool power_off) {
  if (ended_) return;
  note(power_off ? "loses power" : "is killed");
  ended_ = true;
  is_uncounted_ = is_machine_asleep() && !is_excused_;
  sleep_ = Sleep::none;
  // The parent-death signal takes a moment; loss of power doesn't.
  kill_workers(power_off ? Time{0} : Time{3'000'000});
  if (power_off) {
    world_.network().host_down(host_);
  } else {
    world_.network().listen(host_, nullptr);
    close_all(true);
  }
  world_.process_ended(*this);
}

void Process::signal(int signo) {
  dispatch([this, signo] {
    if (world_.history().is_on()) note("gets " + signal_name(signo));
    feed(agent::SignalArrived{signo, now()});
  });
}

void Process::ask_restart() {
  dispatch([this] {
    note("is asked for a restart");
    feed(agent::RestartAsked{now()});
  });
}

void Process::lose_guardian() {
  if (ended_) return;
  note("loses its guardian");
  guardian_.alive = false;
  dispatch([this] { feed(agent::GuardianLost{now()}); });
}

std::string Process::state() const {
  std::string text = paused_ ? "stopped; " : "";
  if (client_) {
    text += "member " + std::string{to_string(client_->phase())} + " " + show(client_->epoch()) +
            " supervisor " + std::string{agent::to_string(group_.phase)} + " " +
            std::to_string(living()) + " workers";
  }
  if (membership_)
    text += "; membership " + std::string{to_string(membership_->phase())} + " " +
            show(membership_->epoch()) + " with " + std::to_string(membership_->connected());
  return text;
}

}  // namespace acc::simulation
