#include "tests/simulation/world.hpp"

#include "tests/simulation/violation.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>

namespace acc::simulation {

using namespace rendezvous;

namespace {

/// A process that is woken more often within a millisecond is in a busy loop.
constexpr std::uint32_t kMostTicks = 100;

}  // namespace

bool is_beat(const Message& message) {
  return std::holds_alternative<Heartbeat>(message) ||
         std::holds_alternative<HeartbeatAck>(message);
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
      etcd_{queue_, Random{scenario.seed ^ 0xe7cd}, [this] { checker_.forgotten_by_etcd(); }},
      history_{with_history},
      checker_{scenario.restart.max_restarts} {
  make_hosts();
}

void World::make_hosts() {
  const auto duplicates = static_cast<std::size_t>(
      std::ranges::count(scenario_.faults, FaultKind::duplicate, &Fault::kind));
  const auto count = scenario_.nodes.size() + 1 + duplicates + (scenario_.by_etcd ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    network_.add_host();
    Host host;
    // Booted between an hour and a month ago.
    host.clock = Clock{between(random_, 3'600 * kSecond, 2'600'000 * kSecond),
                       random_.between(-scenario_.skew_ppm, scenario_.skew_ppm)};
    host.name = "node" + std::to_string(i);
    hosts_.push_back(std::move(host));
  }
}

// The last host is etcd's.
bool World::reaches_etcd(HostId host) const {
  const auto etcd = static_cast<HostId>(hosts_.size() - 1);
  return network_.passes(host, etcd) && network_.passes(etcd, host);
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
  spec.by_etcd = scenario_.by_etcd;
  spec.serves_seed =
      is_coordinator_alone || (host == 0 && !scenario_.stands_alone && !scenario_.by_etcd);
  spec.stop.grace = scenario_.grace;
  spec.membership.job = "job";
  spec.membership.name = is_coordinator_alone ? "coordinator" : name;
  spec.membership.where = address(host);
  spec.membership.timings = scenario_.timings;
  spec.membership.seed = random_.next();
  spec.membership.is_restarted_seed = spec.serves_seed && hosts_[host].starts > 0;
  if (is_coordinator_alone) return spec;
  spec.membership.nodes_min = scenario_.nodes_min;
  spec.membership.nodes_max = scenario_.nodes_max;
  spec.membership.policy = policy();

  CoordinatorClientOptions client;
  client.self.job = "job";
  client.self.node = {name, random_.next()};
  client.self.host = name;
  const auto number = static_cast<std::uint32_t>(std::stoul(name.substr(4)));
  spec.listens = spec.serves_seed || scenario_.nodes[number].listens;
  client.self.listens = spec.listens ? kPort : std::uint16_t{0};
  client.self.slots = scenario_.nodes[number].slots;
  if (scenario_.by_rank) client.self.wanted = NodeRank{number};
  client.self.nodes_min = scenario_.nodes_min;
  client.self.nodes_max = scenario_.nodes_max;
  client.self.policy = policy();
  // As a script with --log log.$(hostname): such a job runs.
  client.self.facts = {{"arguments", "--log log." + name, number}, {"precision", "no", 1}};
  spec.membership.facts = client.self.facts;
  if (!scenario_.by_etcd)
    client.seed_endpoint = {address(scenario_.stands_alone ? coordinator_host : 0), kPort};
  client.external_leader = scenario_.by_etcd;
  client.serves_seed = spec.serves_seed;
  client.timings = scenario_.timings;
  client.join_timeout = scenario_.join_timeout;
  client.seed = random_.next();
  spec.client = std::move(client);
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
    // The side of etcd: that of the other hosts, otherwise.
    if (scenario_.by_etcd && fault.number == SIGUSR1) {
      cut.from.back() = true;
      cut.to.back() = false;
    }
    const auto number = network_.begin_cut(std::move(cut));
    queue_.after(fault.lasts, [this, number] { network_.end_cut(number); });
    return;
  }
  if (fault.kind == FaultKind::cut_from_etcd) {
    Cut cut{std::vector<bool>(hosts_.size(), false), std::vector<bool>(hosts_.size(), false), true};
    for (const auto host : fault.hosts) cut.from[host] = true;
    cut.to.back() = true;
    const auto number = network_.begin_cut(std::move(cut));
    queue_.after(fault.lasts, [this, number] { network_.end_cut(number); });
    return;
  }
  if (fault.kind == FaultKind::freeze_etcd) return etcd_.freeze(fault.lasts);
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
      machine_goes_on(host);  // a sleeping machine boots anew
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
      network_.slow_down(host, Time{scenario_.timings.heartbeat_timeout} / 8);
      queue_.after(fault.lasts, [this, host] { network_.slow_down(host, Time{0}); });
      return;
    case FaultKind::reset:
      return process->reset_connection();
    case FaultKind::signal:
      if (process->is_agent()) process->signal(fault.number);
      return;
    case FaultKind::ask_restart:
      if (process->is_agent()) process->ask_restart();
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
    case FaultKind::cut_from_etcd:
    case FaultKind::freeze_etcd:
    case FaultKind::replay:
    case FaultKind::lose_coordinator:
      return;
  }
}

// ---- the loss of coordinators ----

Process* World::coordinator_above(Term above) const {
  for (const auto& process : processes_) {
    if (!process->is_alive() || !process->is_coordinator()) continue;
    const auto& membership = *process->membership();
    if (membership.epoch().term > above && membership.has_round()) return process.get();
  }
  return nullptr;
}

// True if the newest round has a majority without this coordinator.
bool World::can_succeed(const Process& lost) const {
  const auto phase = lost.membership()->phase();
  if (phase == MembershipPhase::assigning || phase == MembershipPhase::closed) return false;
  const auto newest = lost.membership()->epoch().round;
  std::uint32_t others = 0;
  std::uint32_t nodes = 0;
  for (const auto& process : processes_) {
    const bool lives = process->is_alive() && process->is_agent() && process.get() != &lost;
    if (!lives || process->client()->epoch().round != newest ||
        process->client()->epoch().term.number == 0)
      continue;
    ++others;
    nodes = process->client()->place().nodes;
  }
  return nodes > 2 && others >= majority_of(nodes);
}

void World::lose_coordinator(const Fault& fault) {
  if (is_healed_ || to_come_ == scenario_.nodes.size()) return;
  Process* const lost = coordinator_above(Term{});
  if (lost == nullptr || !can_succeed(*lost)) {
    queue_.after(Time{scenario_.timings.heartbeat_timeout} / 20,
                 [this, &fault] { lose_coordinator(fault); });
    return;
  }
  const Term term = last_lost_ = lost->membership()->epoch().term;
  auto death = fault;
  death.kind = fault.number == 1 ? FaultKind::power_off : FaultKind::kill_agent;
  apply_to(lost->host(), death);
  watch_succession(queue_.now(), term);
}

void World::watch_succession(Time since, Term of) {
  const Time took = queue_.now() - since;
  const Time bound = Time{scenario_.timings.lease} + kSecond;
  // A successor may be coordinator only for a moment before it is lost itself.
  const bool is_succeeded = last_lost_ > of || coordinator_above(of) != nullptr;
  const bool is_over = is_succeeded || took > 10 * bound || living_ == 0;
  if (is_over) {
    stats_.successions.push_back({scenario_.seed, took, bound});
    return;
  }
  queue_.after(Time{scenario_.timings.heartbeat_timeout} / 100,
               [this, since, of] { watch_succession(since, of); });
}

// No process on it runs, nothing reaches it, and a paused machine's clocks stop.
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
  const Time later = random_.chance(0.5) ? Time{0} : 2 * Time{scenario_.timings.heartbeat_timeout};
  queue_.after(fault.lasts + between(random_, Time{0}, later + Time{1}),
               [this, number] { network_.end_cut(number); });
}

// True if the clocks of a machine that was paused show the pause now.
bool World::machine_goes_on(HostId host) {
  auto& place = hosts_[host];
  const auto stopped = std::exchange(place.stopped, std::nullopt);
  if (!stopped) return false;
  if (stopped->first == FaultKind::suspend) {
    place.suspended += queue_.now() - stopped->second;
    return false;
  }
  const Time stood = place.clock.go_on(queue_.now());
  // Some hypervisors correct the guest's wall clock, others leave it to NTP.
  if (!random_.chance(0.5)) return false;
  place.ahead += stood;
  return stood > Time{kClockStep};
}

void World::heal() {
  if (history_.is_on()) history_.add(queue_.now(), "WORLD", "all faults are over");
  is_healed_ = true;
  network_.heal();
  etcd_.heal();
  for (HostId host = 0; host < hosts_.size(); ++host) machine_goes_on(host);
  for (const auto& process : processes_) {
    process->resume();
    process->thaw();
  }
}

// ---- nodes without a place in the running round ----

// The coordinator, as far as both can know.
const Process* World::running_coordinator_of(const Process& agent) const {
  for (const auto& process : processes_) {
    const auto* const membership = process->is_alive() ? process->membership() : nullptr;
    const bool is_its = membership != nullptr && !process->is_frozen() &&
                        membership->epoch().term == agent.client()->term();
    if (is_its && membership->phase() == MembershipPhase::running) return process.get();
  }
  return nullptr;
}

bool World::could_be_larger(const Process& coordinator) const {
  if (!scenario_.scale_up_now) return false;
  const auto& epoch = coordinator.membership()->epoch();
  return std::ranges::any_of(processes_, [&](const auto& process) {
    const auto* const member = process->is_alive() ? process->client() : nullptr;
    return member != nullptr && member->state() == NodeState::running && member->epoch() == epoch &&
           member->place().nodes < scenario_.nodes_max;
  });
}

// Each node must be notified in time that it waits, and may wait only for lack of a place.
void World::watch_waiting() {
  const Time dead{scenario_.timings.heartbeat_timeout};
  for (const auto& process : processes_) {
    const auto* const member = process->is_alive() ? process->client() : nullptr;
    const bool is_without =
        member != nullptr && !process->is_frozen() && member->is_connected() &&
        (member->state() == NodeState::nothing || member->state() == NodeState::stopped);
    const auto* const coordinator = is_without ? running_coordinator_of(*process) : nullptr;
    const bool grows = coordinator != nullptr && could_be_larger(*coordinator);
    if (coordinator == nullptr || (process->knows_its_place() && !grows)) {
      waiting_since_.erase(process.get());
      continue;
    }
    auto& since = waiting_since_.try_emplace(process.get(), queue_.now()).first->second;
    since = std::max(since, process->welcomed_at());
    const Time waited = queue_.now() - since;
    const auto complain = [&](const std::string& what) {
      throw Violation{"liveness", process->name() + what + ": " + process->state()};
    };
    // The other side detects a path that is cut in one direction.
    if (!process->knows_its_place() && waited > 2 * dead)
      complain(" has no part in the running round, and isn't told that it waits");
    if (grows && waited > 4 * dead) complain(" gets no place in a round that could be larger");
  }
  if (!is_over()) queue_.after(dead / 4, [this] { watch_waiting(); });
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
  queue_.after(Time{scenario_.timings.heartbeat_timeout}, [this] { watch_waiting(); });
  while (!is_over() && queue_.next() <= scenario_.limit) queue_.step();
  check_end();
  // Deaths that are due happen now.
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

// ---- random choices ----

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
