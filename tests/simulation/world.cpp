#include "tests/simulation/world.hpp"

#include "tests/simulation/violation.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>

namespace acc::simulation {

using namespace rendezvous;

namespace {

/// A process that is woken more often within a millisecond turns in a circle.
constexpr std::uint32_t kMostTicks = 100;

}  // namespace

bool is_beat(const Message& message) {
  return std::holds_alternative<Beat>(message) || std::holds_alternative<BeatAck>(message);
}

void Stats::add(const Stats& o) {
  events += o.events;
  frames += o.frames;
  rounds += o.rounds;
  elections += o.elections;
  step_downs += o.step_downs;
  leases_over += o.leases_over;
  lease_kills += o.lease_kills;
  given_up += o.given_up;
  replays += o.replays;
  writes += o.writes;
  refused_writes += o.refused_writes;
  doubts += o.doubts;
  kernel_kills += o.kernel_kills;
  succeeded += o.succeeded;
  closed += o.closed;
  successions.insert(successions.end(), o.successions.begin(), o.successions.end());
}

World::World(const Scenario& scenario, bool with_history)
    : scenario_{scenario},
      random_{scenario.seed ^ 0x5eed},
      network_{queue_, Random{scenario.seed ^ 0xca81e5}, scenario.network},
      history_{with_history},
      checker_{scenario.restart.max_restarts} {
  make_hosts();
}

void World::make_hosts() {
  const auto duplicates = static_cast<std::size_t>(
      std::ranges::count(scenario_.faults, FaultKind::duplicate, &Fault::kind));
  const auto count = scenario_.nodes.size() + 1 + duplicates;
  for (std::size_t i = 0; i < count; ++i) {
    network_.add_host();
    Host host;
    // Booted at any time between an hour and a month ago.
    host.clock = Clock{between(random_, 3'600 * kSecond, 2'600'000 * kSecond),
                       random_.between(-scenario_.skew_ppm, scenario_.skew_ppm)};
    host.name = "node" + std::to_string(i);
    hosts_.push_back(std::move(host));
  }
}

Clocks World::clocks(HostId host) const {
  const auto& place = hosts_[host];
  Clocks clocks;
  clocks.boot = place.clock.at(queue_.now());
  const std::chrono::nanoseconds boot = clocks.boot.time_since_epoch();
  clocks.monotonic = boot - place.suspended;
  clocks.realtime = boot + place.ahead;
  return clocks;
}

std::optional<HostId> World::host_at(const HostPort& where) const {
  HostId host = 0;
  const auto* const end = where.host.data() + where.host.size();
  if (where.port != kPort || where.host.size() < 2 ||
      std::from_chars(where.host.data() + 1, end, host).ptr != end || host >= hosts_.size())
    return std::nullopt;
  return host;
}

// ---- processes ----

JobPolicy World::policy() const {
  JobPolicy policy;
  policy.restart = scenario_.restart;
  policy.grace = scenario_.grace;
  policy.join_timeout = scenario_.join_timeout;
  policy.scale_up_now = scenario_.scale_up_now;
  return policy;
}

ProcessSpec World::spec_of(HostId host, const std::string& name) {
  const auto coordinator_host = static_cast<HostId>(scenario_.nodes.size());
  const bool is_coordinator_alone = host == coordinator_host;
  ProcessSpec spec;
  spec.name = name;
  spec.hosts = is_coordinator_alone || (host == 0 && !scenario_.stands_alone);
  spec.stop.grace = scenario_.grace;
  spec.roster.job = "job";
  spec.roster.name = is_coordinator_alone ? "coordinator" : name;
  spec.roster.where = address(host);
  spec.roster.timings = scenario_.timings;
  spec.roster.seed = random_.next();
  spec.roster.is_second = spec.hosts && hosts_[host].starts > 0;
  if (is_coordinator_alone) return spec;
  spec.roster.nodes_min = scenario_.nodes_min;
  spec.roster.nodes_max = scenario_.nodes_max;
  spec.roster.policy = policy();

  MemberOptions member;
  member.self.job = "job";
  member.self.node = {name, random_.next()};
  member.self.host = name;
  const auto number = static_cast<std::uint32_t>(std::stoul(name.substr(4)));
  spec.listens = spec.hosts || scenario_.nodes[number].listens;
  member.self.listens = spec.listens ? kPort : std::uint16_t{0};
  member.self.slots = scenario_.nodes[number].slots;
  if (scenario_.by_rank) member.self.wanted = NodeRank{number};
  member.self.nodes_min = scenario_.nodes_min;
  member.self.nodes_max = scenario_.nodes_max;
  member.self.policy = policy();
  member.self.wall_clock_ms = random_.between(0, 4'000'000'000'000);  // nobody's wall clock counts
  member.home = {address(scenario_.stands_alone ? coordinator_host : 0), kPort};
  member.hosts = spec.hosts;
  member.timings = scenario_.timings;
  member.join_timeout = scenario_.join_timeout;
  member.seed = random_.next();
  spec.member = std::move(member);
  return spec;
}

void World::start_process(HostId host, const std::string& name) {
  auto& process =
      *processes_.emplace_back(std::make_unique<Process>(*this, host, spec_of(host, name)));
  hosts_[host].process = &process;
  ++hosts_[host].starts;
  if (history_.is_on()) history_.add(queue_.now(), name, "its agent starts on " + address(host));
  if (host != scenario_.nodes.size()) ++living_;
  process.begin();
}

void World::process_ended(const Process& process) {
  auto& host = hosts_[process.host()];
  if (host.process == &process) host.process = nullptr;
  if (process.is_agent()) --living_;
}

void World::come_back(HostId host) {
  --to_come_;
  auto& place = hosts_[host];
  if (!place.up) network_.host_up(host);
  place.up = true;
  if (place.process == nullptr) start_process(host, place.name);
}

// ---- faults ----

void World::apply(const Fault& fault) {
  if (history_.is_on() && fault.kind != FaultKind::replay) {
    std::string who;
    for (const auto host : fault.hosts) who += " " + address(host);
    history_.add(queue_.now(), "FAULT", std::string{name_of(fault.kind)} + who);
  }
  if (fault.kind == FaultKind::cut_both || fault.kind == FaultKind::cut_one_way) {
    Cut cut{std::vector<bool>(hosts_.size(), false), std::vector<bool>(hosts_.size(), true),
            fault.kind == FaultKind::cut_both};
    for (const auto host : fault.hosts) {
      cut.from[host] = true;
      cut.to[host] = false;
    }
    const auto number = network_.begin_cut(std::move(cut));
    queue_.after(fault.lasts, [this, number] { network_.end_cut(number); });
    return;
  }
  if (fault.kind == FaultKind::replay) {
    const auto first = random_.below(processes_.size() + 1);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (!processes_[(first + i) % processes_.size()]->replay()) continue;
      ++stats_.replays;
      return;
    }
    return;
  }
  if (fault.kind == FaultKind::lose_coordinator) return lose_coordinator(fault);
  for (const auto host : fault.hosts) apply_to(host, fault);
}

void World::apply_to(HostId host, const Fault& fault) {
  auto* const process = hosts_[host].process;
  if (process == nullptr) return;
  switch (fault.kind) {
    case FaultKind::kill_agent:
    case FaultKind::power_off:
      if (fault.kind == FaultKind::power_off) hosts_[host].up = false;
      process->die(fault.kind == FaultKind::power_off);
      machine_goes_on(host);  // one that slept boots anew
      if (fault.lasts == kNever) return;
      ++to_come_;
      queue_.after(fault.lasts, [this, host] { come_back(host); });
      return;
    case FaultKind::pause:
      process->pause();
      queue_.after(fault.lasts, [process] { process->resume(); });
      return;
    case FaultKind::freeze:
      if (!process->freeze(Process::Sleep::stopped)) return;
      queue_.after(fault.lasts, [process] { process->thaw(); });
      return;
    case FaultKind::suspend:
    case FaultKind::vm_pause:
      return stop_machine(host, fault);
    case FaultKind::set_clock:
      hosts_[host].ahead += 3'600 * kSecond;
      return process->look_at_clocks();
    case FaultKind::slow:
      network_.slow_down(host, Time{scenario_.timings.dead} / 8);
      queue_.after(fault.lasts, [this, host] { network_.slow_down(host, Time{0}); });
      return;
    case FaultKind::reset:
      return process->reset_connection();
    case FaultKind::signal:
      if (process->is_agent()) process->signal(fault.number);
      return;
    case FaultKind::crash_worker:
      return process->crash_worker();
    case FaultKind::lose_guardian:
      if (process->is_agent() && !process->is_paused()) process->lose_guardian();
      return;
    case FaultKind::duplicate: {
      if (!process->is_agent()) return;
      auto free = static_cast<HostId>(scenario_.nodes.size() + 1);
      while (hosts_[free].process != nullptr) ++free;
      start_process(free, process->name());
      return;
    }
    case FaultKind::cut_both:
    case FaultKind::cut_one_way:
    case FaultKind::replay:
    case FaultKind::lose_coordinator:
      return;
  }
}

// ---- the loss of coordinators ----

Process* World::in_office(Term above) const {
  for (const auto& process : processes_) {
    if (!process->is_alive() || !process->has_office()) continue;
    const auto& roster = *process->roster();
    if (roster.epoch().term > above && roster.has_round()) return process.get();
  }
  return nullptr;
}

// Is there a majority of the newest round, without this one?
bool World::can_succeed(const Process& lost) const {
  const auto phase = lost.roster()->phase();
  if (phase == RosterPhase::assigning || phase == RosterPhase::closed) return false;
  const auto newest = lost.roster()->epoch().round;
  std::uint32_t others = 0;
  std::uint32_t nodes = 0;
  for (const auto& process : processes_) {
    const bool lives = process->is_alive() && process->is_agent() && process.get() != &lost;
    if (!lives || process->member()->epoch().round != newest ||
        process->member()->epoch().term.number == 0)
      continue;
    ++others;
    nodes = process->member()->place().nodes;
  }
  return nodes > 2 && others >= majority_of(nodes);
}

void World::lose_coordinator(const Fault& fault) {
  if (is_healed_ || to_come_ == scenario_.nodes.size()) return;
  Process* const lost = in_office(Term{});
  if (lost == nullptr || !can_succeed(*lost)) {
    queue_.after(Time{scenario_.timings.dead} / 20, [this, &fault] { lose_coordinator(fault); });
    return;
  }
  const Term term = last_lost_ = lost->roster()->epoch().term;
  auto death = fault;
  death.kind = fault.number == 1 ? FaultKind::power_off : FaultKind::kill_agent;
  apply_to(lost->host(), death);
  watch_succession(queue_.now(), term);
}

void World::watch_succession(Time since, Term of) {
  const Time took = queue_.now() - since;
  const Time bound = Time{scenario_.timings.lease} + kSecond;
  // It may be in office only for a moment before it is lost itself.
  const bool is_succeeded = last_lost_ > of || in_office(of) != nullptr;
  const bool is_over = is_succeeded || took > 10 * bound || living_ == 0;
  if (is_over) {
    stats_.successions.push_back({scenario_.seed, took, bound});
    return;
  }
  queue_.after(Time{scenario_.timings.dead} / 100,
               [this, since, of] { watch_succession(since, of); });
}

// Nothing of it runs, nothing reaches it, and a paused machine's clocks stand still.
void World::stop_machine(HostId host, const Fault& fault) {
  auto* const process = hosts_[host].process;
  const bool is_paused = fault.kind == FaultKind::vm_pause;
  if (!process->freeze(is_paused ? Process::Sleep::paused : Process::Sleep::suspended)) return;
  hosts_[host].stopped = {fault.kind, queue_.now()};
  if (is_paused) hosts_[host].clock.stop(queue_.now());
  Cut cut{std::vector<bool>(hosts_.size(), false), std::vector<bool>(hosts_.size(), true), true};
  cut.from[host] = true;
  cut.to[host] = false;
  const auto number = network_.begin_cut(std::move(cut));
  queue_.after(fault.lasts, [this, host, process] {
    const bool is_known = machine_goes_on(host);
    process->thaw();
    if (is_known) process->expect_confirmation();
  });
  const Time later = random_.chance(0.5) ? Time{0} : 2 * Time{scenario_.timings.dead};
  queue_.after(fault.lasts + between(random_, Time{0}, later + Time{1}),
               [this, number] { network_.end_cut(number); });
}

// True if the clocks of a machine that was paused show it now.
bool World::machine_goes_on(HostId host) {
  auto& place = hosts_[host];
  const auto stopped = std::exchange(place.stopped, std::nullopt);
  if (!stopped) return false;
  if (stopped->first == FaultKind::suspend) {
    place.suspended += queue_.now() - stopped->second;
    return false;
  }
  const Time stood = place.clock.go_on(queue_.now());
  // Some hypervisors set the guest's wall clock right, others leave it to NTP.
  if (!random_.chance(0.5)) return false;
  place.ahead += stood;
  return stood > Time{kClockStep};
}

void World::heal() {
  if (history_.is_on()) history_.add(queue_.now(), "WORLD", "all faults are over");
  is_healed_ = true;
  network_.heal();
  for (HostId host = 0; host < hosts_.size(); ++host) machine_goes_on(host);
  for (const auto& process : processes_) {
    process->resume();
    process->thaw();
  }
}

// ---- a seed ----

void World::run() {
  if (scenario_.stands_alone)
    start_process(static_cast<HostId>(scenario_.nodes.size()), "coordinator");
  for (HostId host = 0; host < scenario_.nodes.size(); ++host) {
    ++to_come_;
    queue_.at(scenario_.nodes[host].comes, [this, host] { come_back(host); });
  }
  for (const auto& fault : scenario_.faults) queue_.at(fault.at, [this, &fault] { apply(fault); });
  if (!scenario_.quiet) queue_.at(scenario_.healed, [this] { heal(); });
  while (!is_over() && queue_.next() <= scenario_.limit) queue_.step();
  check_end();
  // What still dies dies now.
  const Time a_moment = queue_.now() + kSecond;
  while (queue_.next() <= a_moment) queue_.step();
  if (checker_.living() > 0)
    throw Violation{"P2", std::to_string(checker_.living()) + " workers outlive their agents"};
  stats_.events = queue_.happened();
  stats_.rounds = checker_.rounds();
  stats_.succeeded = checker_.any_success() ? 1 : 0;
  stats_.closed = checker_.closes() > 0 && !checker_.any_success() ? 1 : 0;
}

bool World::is_over() const { return living_ == 0 && to_come_ == 0; }

void World::check_end() const {
  if (!is_over()) {
    std::string who;
    for (const auto& process : processes_) {
      if (process->is_alive() && process->is_agent())
        who += "\n  " + process->name() + ": " + process->state();
    }
    throw Violation{"liveness", std::to_string(living_) + " agents are still there:" + who};
  }
  if (scenario_.quiet && (!checker_.any_success() || stats_.given_up > 0))
    throw Violation{"liveness", "nothing went wrong, and the job did not succeed everywhere"};
}

// ---- chance ----

World::Life World::draw_life(std::uint32_t world_size) {
  if (!is_healed_ && scenario_.failing > 0 && random_.chance(scenario_.failing / world_size)) {
    const ExitStatus status = random_.chance(0.5)
                                  ? ExitStatus{Exited{static_cast<int>(random_.between(1, 9))}}
                                  : ExitStatus{Signaled{SIGSEGV, false}};
    return {between(random_, Time{0}, scenario_.length), status};
  }
  return {between(random_, scenario_.length, scenario_.length + scenario_.length / 20), Exited{0}};
}

std::optional<Time> World::draw_reaction() {
  const double kind = random_.fraction();
  if (kind < 0.03) return std::nullopt;
  if (kind < 0.10) return between(random_, Time{0}, Time{scenario_.grace});
  return between(random_, Time{0}, Time{50'000'000});
}

Time World::draw_spawn_time() { return between(random_, Time{0}, Time{20'000'000}); }

int World::draw_start_error() {
  if (is_healed_ || scenario_.start_errors <= 0 || !random_.chance(scenario_.start_errors))
    return 0;
  return random_.chance(0.8) ? EAGAIN : ENOENT;
}

// ---- counters ----

void World::count_tick(HostId host) {
  auto& place = hosts_[host];
  const auto millisecond = queue_.now().count() / 1'000'000;
  if (place.tick_millisecond != millisecond) {
    place.tick_millisecond = millisecond;
    place.ticks = 0;
  }
  if (++place.ticks > kMostTicks)
    throw Violation{"liveness", place.name + " turns in a circle: " +
                                    (place.process ? place.process->state() : "")};
}

void World::count_frame(HostId agent, const Frame& frame) {
  ++stats_.frames;
  if (!scenario_.counts_frames || is_beat(frame.message)) return;
  ++frames_but_beats_;
  ++frames_by_node_and_round_[{agent, frame.epoch.round.value()}];
}

std::uint32_t World::most_frames_per_node_and_round() const {
  std::uint32_t most = 0;
  for (const auto& [key, count] : frames_by_node_and_round_) most = std::max(most, count);
  return most;
}

}  // namespace acc::simulation
