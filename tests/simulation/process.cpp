#include "tests/simulation/process.hpp"

#include "tests/simulation/glue.hpp"
#include "tests/simulation/violation.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <csignal>

// How a process lives: what it hears when, its timers, its end.
namespace acc::simulation {

using namespace rendezvous;

namespace {

/// A deadline that lies further away than anything in a job is no deadline.
constexpr auto kLongestWait = std::chrono::hours{1};

}  // namespace

Process::Process(World& world, HostId host, ProcessSpec spec)
    : world_{world}, host_{host}, spec_{std::move(spec)}, clocks_{world.clocks(host)} {
  group_.coordinated = true;
  group_.stop = spec_.stop;
  if (spec_.member) group_.size = spec_.member->self.slots;
}

Instant Process::now() const { return world_.clock(host_).at(world_.queue().now()); }

void Process::note(const std::string& what) const {
  world_.history().add(world_.queue().now(), spec_.name, what);
}

// Many dials with the same outcome are one line.
void Process::note_dial(const std::string& outcome) {
  if (!world_.history().is_on() || last_dial_ == outcome) return;
  last_dial_ = outcome;
  note(outcome);
}

void Process::begin() {
  if (spec_.listens) world_.network().listen(host_, this);
  if (spec_.hosts) {
    roster_.emplace(spec_.roster, now());
    roster_id_ = world_.next_roster();
  }
  if (spec_.member) {
    member_.emplace(*spec_.member, now());
    feed(agent::Began{now()});
    carry_out(member_->begin(now()));
  }
  settle();
}

// ---- what it hears when ----

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
  // After everything else of this moment.
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
  // Whether the timers or the sockets are served first is nobody's promise.
  if (!is_frozen() && world_.random().chance(0.5)) tick();
  drain();
  if (!ended_ && !is_frozen()) tick();
}

bool Process::freeze(Sleep how) {
  // Paused with an answer in its socket, or a start: the window that docs/operations.md admits.
  if (ended_ || sleep_ != Sleep::none) return false;
  if (how == Sleep::paused && (is_frozen() || (member_ && member_->holding() == Holding::assigned)))
    return false;
  note(how == Sleep::stopped     ? "is frozen with all its workers"
       : how == Sleep::suspended ? "is on a machine that is suspended"
                                 : "is on a machine that is paused");
  sleep_ = how;
  if (is_machine_asleep() && !is_excused_) world_.checker().fell_asleep(workers_epoch_, living());
  is_excused_ = is_excused_ || how == Sleep::paused;
  return true;
}

// The kernel is first: its timers, then what was killed before. Whether workers or agent run next is
// nobody's promise.
void Process::thaw() {
  if (ended_ || sleep_ == Sleep::none) return;
  note("wakes up");
  is_uncounted_ = is_machine_asleep() && !is_excused_;
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
  const Time limit = Time{spec_.roster.timings.confirmation()} * 101 / 100 + kMargin;
  world_.queue().after(limit, [this, generation = generation_, renewals = renewals_] {
    const bool is_here = !ended_ && sleep_ == Sleep::none && guardian_.alive;
    if (is_here && generation == generation_ && renewals == renewals_ && living() > 0)
      throw Violation{"P1", spec_.name + " was paused, its clocks know it, and its workers live on"};
  });
}

// As Party and Coordinator do before each event.
void Process::look_at_clocks() {
  if (ended_ || is_frozen()) return;
  if (!clocks_.look(world_.clocks(host_))) return;
  note("its clocks are in doubt");
  ++world_.stats().doubts;
  if (member_) carry_out(member_->clock_doubted(now()));
  if (roster_ && !ended_) carry_out(roster_->clock_doubted(now()));
  if (writer_.question != 0) ask_to_write();
  settle();
}

// ---- timers ----

void Process::plan_wake() {
  Instant next = Instant::max();
  if (member_ && member_->phase() != LinkPhase::ended) {
    next = member_->next_deadline();
    if (next - now() > kLongestWait)
      throw Violation{"liveness", spec_.name + " waits for ever: " + state()};
  }
  if (roster_) next = std::min(next, roster_->next_deadline());
  if (next == Instant::max()) return;
  const Time at = std::max(world_.clock(host_).when(next), world_.queue().now() + Time{1'000});
  if (at >= wake_at_) return;  // the earlier one plans again
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
  const bool is_due =
      (member_ && member_->next_deadline() <= at) || (roster_ && roster_->next_deadline() <= at);
  if (is_due) {
    world_.count_tick(host_);
    tick();
  }
  settle();
}

void Process::tick() {
  if (member_) carry_out(member_->tick(now()));
  if (roster_ && !ended_) carry_out(roster_->tick(now()));
  settle();
}

// ---- its end ----

void Process::close_all(bool died) {
  auto& network = world_.network();
  const auto close = [&](End end) { died ? network.abort(end) : network.close(end); };
  if (uplink_) close(*uplink_);
  if (home_link_) close(*home_link_);
  for (const auto& [end, peer] : peers_) close(end);
}

// Finish was said and carried out: the process ends by itself, what it sent goes out.
void Process::exit() {
  if (ended_) return;
  if (member_) carry_out(member_->leaves(farewell_of(finish_->verdict), now()));
  note("ends: " + std::string{agent::to_string(finish_->verdict)} + ", code " +
       std::to_string(finish_->exit_code));
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
  // Their parent-death signal needs a moment; the power doesn't.
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

void Process::lose_guardian() {
  if (ended_) return;
  note("loses its guardian");
  guardian_.alive = false;
  dispatch([this] { feed(agent::GuardianLost{now()}); });
}

std::string Process::state() const {
  std::string text = paused_ ? "stopped; " : "";
  if (member_) {
    text += "member " + std::string{to_string(member_->phase())} + " " + show(member_->epoch()) +
            " supervisor " + std::string{agent::to_string(group_.phase)} + " " +
            std::to_string(living()) + " workers";
  }
  if (roster_)
    text += "; roster " + std::string{to_string(roster_->phase())} + " " + show(roster_->epoch()) +
            " with " + std::to_string(roster_->connected());
  return text;
}

}  // namespace acc::simulation
