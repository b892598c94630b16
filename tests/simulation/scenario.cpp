#include "tests/simulation/scenario.hpp"

#include "common/enum_names.hpp"
#include "tests/simulation/random.hpp"

#include <algorithm>
#include <csignal>

namespace acc::simulation {

namespace {

using rendezvous::Timings;

Time scaled(Millis unit, double times) {
  return Time{static_cast<std::int64_t>(static_cast<double>(Time{unit}.count()) * times)};
}

Millis in_millis(Time time) { return std::chrono::duration_cast<Millis>(time); }

void draw_timings(Random& random, Scenario& s) {
  constexpr Millis kDead[] = {Millis{300}, Millis{1'000}, Millis{1'000}, Millis{5'000}};
  s.timings.heartbeat_timeout = kDead[random.below(std::size(kDead))];
  s.timings.lease = 2 * s.timings.heartbeat_timeout;
  s.grace = in_millis(scaled(s.timings.heartbeat_timeout, 0.5 + 2 * random.fraction()));
  s.join_timeout = std::max(
      in_millis(scaled(s.timings.heartbeat_timeout, 15 + 25 * random.fraction())), Millis{12'000});
  s.length = scaled(s.timings.heartbeat_timeout, 2 + 8 * random.fraction());
  s.skew_ppm = random.chance(0.5) ? 10'000 : 100;
}

void draw_network(Random& random, Scenario& s) {
  auto& net = s.network;
  net.user_timeout = s.timings.heartbeat_timeout;
  net.handshake = random.chance(0.5);
  net.splits = random.chance(0.3);
  net.loss = random.chance(0.3) ? 0.02 : 0;
  // Retransmission timers of the kernel, but never so slow that a lossy link looks dead.
  net.retransmit = std::min(Time{200'000'000}, scaled(s.timings.heartbeat_timeout, 0.1));
  if (random.chance(0.2)) {
    net.delay = scaled(s.timings.heartbeat_timeout, 0.02);
    net.jitter = scaled(s.timings.heartbeat_timeout, 0.04);
  }
}

void draw_nodes(Random& random, Scenario& s, std::uint32_t most) {
  const auto count = static_cast<std::uint32_t>(random.between(2, std::max(most, 2U)));
  const auto usual_slots = static_cast<std::uint32_t>(random.between(1, 4));
  for (std::uint32_t i = 0; i < count; ++i) {
    NodePlan node;
    node.slots =
        random.chance(0.9) ? usual_slots : static_cast<std::uint32_t>(random.between(1, 8));
    node.comes = between(random, Time{0}, scaled(s.timings.heartbeat_timeout, 0.5));
    if (i > 0 && random.chance(0.05))
      node.comes += scaled(s.timings.heartbeat_timeout, 8 * random.fraction());
    s.nodes.push_back(node);
  }
  s.nodes_max = s.nodes_min = count;
  s.by_rank = random.chance(0.7);
  if (!random.chance(0.5)) return;
  // Elastic. The minimum is more than half of all nodes that may join, or two halves could each be
  // sufficient.
  s.by_rank = random.chance(0.2);
  if (count > 2 && random.chance(0.4))
    s.nodes_max = count - static_cast<std::uint32_t>(random.between(1, (count - 1) / 2));
  s.nodes_min = static_cast<std::uint32_t>(random.between(count / 2 + 1, s.nodes_max));
  s.by_rank = s.by_rank && s.nodes_max == count;
  s.scale_up_now = random.chance(0.3);
}

std::vector<HostId> draw_hosts(Random& random, std::size_t count, std::size_t most) {
  std::vector<HostId> hosts;
  const auto n = static_cast<std::size_t>(random.between(1, static_cast<std::int64_t>(most)));
  while (hosts.size() < n) {
    // The loss of the first node is the critical one.
    const auto host = random.chance(0.25) ? 0U : static_cast<HostId>(random.below(count));
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

int draw_signal(Random& random) {
  constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR1, SIGUSR2};
  return kSignals[random.below(std::size(kSignals))];
}

FaultKind draw_kind(Random& random) {
  constexpr FaultKind kKinds[] = {
      FaultKind::kill_agent,    FaultKind::kill_agent,   FaultKind::power_off,
      FaultKind::power_off,     FaultKind::pause,        FaultKind::pause,
      FaultKind::freeze,        FaultKind::freeze,       FaultKind::suspend,
      FaultKind::suspend,       FaultKind::vm_pause,     FaultKind::vm_pause,
      FaultKind::set_clock,     FaultKind::pause,        FaultKind::cut_both,
      FaultKind::cut_both,      FaultKind::cut_both,     FaultKind::cut_both,
      FaultKind::cut_one_way,   FaultKind::cut_one_way,  FaultKind::slow,
      FaultKind::reset,         FaultKind::reset,        FaultKind::signal,
      FaultKind::crash_worker,  FaultKind::crash_worker, FaultKind::crash_worker,
      FaultKind::lose_guardian, FaultKind::duplicate};
  return kKinds[random.below(std::size(kKinds))];
}

Fault draw_fault(Random& random, const Scenario& s, Time span) {
  Fault fault;
  fault.at = between(random, Time{0}, span);
  fault.kind = draw_kind(random);
  const auto count = s.nodes.size() + (s.stands_alone ? 1 : 0);
  const bool many = fault.kind == FaultKind::cut_both || fault.kind == FaultKind::cut_one_way ||
                    (fault.kind == FaultKind::pause && random.chance(0.3));
  fault.hosts = draw_hosts(random, count, many ? std::max<std::size_t>(count / 2, 1) : 1);
  fault.lasts = scaled(s.timings.heartbeat_timeout,
                       random.chance(0.5) ? random.fraction() : 8 * random.fraction());
  const bool kills = fault.kind == FaultKind::kill_agent || fault.kind == FaultKind::power_off;
  if (kills) fault.lasts = std::max(fault.lasts, kSecond / 10);
  if (kills && random.chance(0.3)) fault.lasts = kNever;
  fault.number = draw_signal(random);
  return fault;
}

void draw_faults(Random& random, Scenario& s) {
  const Time span = scaled(s.timings.heartbeat_timeout, 4 + 16 * random.fraction());
  const auto count = random.chance(0.1) ? 0 : random.between(1, 6);
  for (std::int64_t i = 0; i < count; ++i) {
    s.faults.push_back(draw_fault(random, s, span));
    // Faults often overlap: a second one while the first is being handled.
    if (!random.chance(0.4)) continue;
    auto second = draw_fault(random, s, span);
    second.at = s.faults.back().at + scaled(s.timings.heartbeat_timeout, 2.5 * random.fraction());
    s.faults.push_back(second);
  }
  // From a stream of its own: the histories of seeds without it stay as they were.
  Random asks{s.seed * 0x9e3779b97f4a7c15U + 5};
  if (asks.chance(0.2)) {
    for (auto left = asks.between(1, 3); left > 0; --left) {
      const auto at = between(asks, Time{0}, span);
      s.faults.push_back({at, FaultKind::ask_restart, draw_hosts(asks, s.nodes.size(), 1), Time{0}, 0});
    }
  }
  s.replays = random.chance(0.5);
  if (s.replays) {
    for (int i = 0; i < 40; ++i)
      s.faults.push_back({between(random, Time{0}, 2 * span), FaultKind::replay, {}, Time{0}, 0});
  }
  s.healed = span + scaled(s.timings.heartbeat_timeout, 10);
}

// A firewall, or an address that can't be bound: some nodes, or all, can't take over.
void draw_listeners(Random& random, Scenario& s) {
  if (!random.chance(0.15)) return;
  const double share = random.chance(0.4) ? 0 : random.fraction();
  for (auto& node : s.nodes) node.listens = random.chance(share);
}

Time long_enough(const Scenario& s) {
  return s.healed + 6 * Time{s.join_timeout} + 40 * s.length + 300 * kSecond;
}

}  // namespace

Scenario draw_scenario(std::uint64_t seed, std::uint32_t nodes) {
  Random random{seed * 0x2545f4914f6cdd1dU + 1};
  Scenario s;
  s.seed = seed;
  draw_timings(random, s);
  draw_network(random, s);
  draw_nodes(random, s, nodes);
  s.stands_alone = random.chance(0.15);
  s.restart.max_restarts = static_cast<std::uint32_t>(random.between(0, 5));
  s.restart.delay_base = s.timings.heartbeat_timeout / 4;
  s.failing = random.chance(0.5) ? 0.5 * random.fraction() : 0;
  s.start_errors = random.chance(0.1) ? 0.02 : 0;
  draw_faults(random, s);
  draw_listeners(random, s);
  s.limit = long_enough(s);
  return s;
}

Scenario large_scenario(std::uint64_t seed, std::uint32_t nodes) {
  Random random{seed + 77};
  Scenario s;
  s.seed = seed;
  s.timings = {Millis{5'000}, Millis{10'000}};
  s.network.user_timeout = s.timings.heartbeat_timeout;
  s.network.grain = Time{1'000'000};
  s.nodes.assign(nodes, NodePlan{});
  for (auto& node : s.nodes) node.comes = between(random, Time{0}, kSecond);
  s.nodes_min = s.nodes_max = nodes;
  s.by_rank = seed % 2 == 0;
  s.restart.max_restarts = 3;
  s.length = 12 * kSecond;
  s.skew_ppm = 1'000;
  const auto some_host = [&] { return static_cast<HostId>(random.between(1, nodes - 1)); };
  s.faults.push_back({4 * kSecond, FaultKind::crash_worker, {some_host()}, Time{0}, 0});
  s.faults.push_back({9 * kSecond, FaultKind::power_off, {0}, 12 * kSecond, 0});
  s.faults.push_back({10 * kSecond, FaultKind::pause, {some_host()}, 2 * kSecond, 0});
  s.healed = 40 * kSecond;
  s.limit = long_enough(s);
  return s;
}

Scenario etcd_scenario(std::uint64_t seed, std::uint32_t nodes) {
  Scenario s = draw_scenario(seed, nodes);
  Random random{seed * 0x2545f4914f6cdd1dU + 2};
  s.by_etcd = true;
  s.stands_alone = false;
  for (auto& node : s.nodes) node.listens = true;
  // No majority is needed.
  if (random.chance(0.6)) s.nodes_min = static_cast<std::uint32_t>(random.between(1, s.nodes_min));
  const auto count = random.between(0, 5);
  const Time span = s.healed - scaled(s.timings.heartbeat_timeout, 10);
  for (std::int64_t i = 0; i < count; ++i) {
    Fault fault;
    fault.at = between(random, Time{0}, span);
    fault.kind = random.chance(0.7) ? FaultKind::cut_from_etcd : FaultKind::freeze_etcd;
    if (fault.kind == FaultKind::cut_from_etcd)
      fault.hosts =
          draw_hosts(random, s.nodes.size(), std::max<std::size_t>(s.nodes.size() / 2, 1));
    fault.lasts =
        between(random, Time{0}, std::max(scaled(s.timings.heartbeat_timeout, 6), 6 * kSecond));
    s.faults.push_back(fault);
  }
  for (auto& fault : s.faults)
    std::erase_if(fault.hosts, [&](HostId host) { return host >= s.nodes.size(); });
  return s;
}

Scenario successions_scenario(std::uint64_t seed, std::uint32_t nodes) {
  Random random{seed * 0x2545f4914f6cdd1dU + nodes};
  Scenario s;
  s.seed = seed;
  draw_timings(random, s);
  draw_network(random, s);
  s.nodes.assign(nodes, NodePlan{});
  for (auto& node : s.nodes)
    node.comes = between(random, Time{0}, scaled(s.timings.heartbeat_timeout, 0.2));
  s.nodes_max = nodes;
  s.nodes_min = random.chance(0.3) ? nodes : nodes / 2 + 1;
  s.by_rank = random.chance(0.3);
  s.scale_up_now = random.chance(0.3);
  s.restart.max_restarts = 100;
  s.restart.delay_base = s.timings.heartbeat_timeout / 4;
  s.length = scaled(s.timings.lease, 40);
  Time at = scaled(s.timings.heartbeat_timeout, 2 + random.fraction());
  const auto losses = random.between(2, 3);
  for (std::int64_t i = 0; i < losses; ++i) {
    Time lasts = scaled(s.timings.heartbeat_timeout, 0.1 + 2 * random.fraction());
    if (nodes > 3 && random.chance(0.5)) lasts = kNever;
    s.faults.push_back({at, FaultKind::lose_coordinator, {}, lasts, random.chance(0.4) ? 1 : 0});
    at += scaled(s.timings.lease, (random.chance(0.3) ? 0.1 : 4) * random.fraction());
  }
  const Time span = at + scaled(s.timings.lease, 4);
  const auto stalls = random.chance(0.5) ? random.between(0, 40 * nodes) : 0;
  for (std::int64_t i = 0; i < stalls; ++i)
    s.faults.push_back({between(random, Time{0}, span),
                        FaultKind::pause,
                        {static_cast<HostId>(random.below(nodes))},
                        scaled(s.timings.heartbeat_timeout, 0.12 * random.fraction()),
                        0});
  s.healed = span + scaled(s.timings.lease, 20);
  s.limit = long_enough(s);
  return s;
}

Scenario quiet_scenario(std::uint32_t nodes, std::uint32_t restarts) {
  Scenario s;
  s.seed = nodes;
  s.quiet = true;
  s.counts_frames = true;
  s.nodes.assign(nodes, NodePlan{});
  s.nodes_min = s.nodes_max = nodes;
  s.network.user_timeout = s.timings.heartbeat_timeout;
  s.network.grain = Time{1'000'000};
  s.restart.max_restarts = restarts;
  s.length = 30 * kSecond;
  for (std::uint32_t i = 0; i < restarts; ++i)
    s.faults.push_back({(3 + 10 * i) * kSecond, FaultKind::crash_worker, {i % nodes}, Time{0}, 0});
  s.limit = long_enough(s);
  return s;
}

std::string_view name_of(FaultKind kind) {
  static constexpr EnumNames<FaultKind, FaultKind::freeze_etcd> kNames{
      {"kill_agent", "power_off", "pause", "freeze", "suspend", "vm_pause", "set_clock", "cut_both",
       "cut_one_way", "slow", "reset", "signal", "ask_restart", "crash_worker", "lose_guardian", "duplicate",
       "replay", "lose_coordinator", "cut_from_etcd", "freeze_etcd"}};
  return kNames[kind];
}

std::string describe(const Scenario& s) {
  std::string text = std::to_string(s.nodes.size()) + " nodes for " + std::to_string(s.nodes_min) +
                     ":" + std::to_string(s.nodes_max) + (s.by_rank ? " by rank" : "") +
                     (s.stands_alone ? ", coordinator alone" : "") + ", dead after " +
                     std::to_string(s.timings.heartbeat_timeout.count()) + " ms, grace " +
                     std::to_string(s.grace.count()) + " ms, " +
                     std::to_string(s.restart.max_restarts) + " restarts, work of " +
                     std::to_string(in_millis(s.length).count()) + " ms, join timeout " +
                     std::to_string(s.join_timeout.count()) + " ms";
  const auto listening = std::ranges::count(s.nodes, true, &NodePlan::listens);
  if (listening != std::ssize(s.nodes))
    text += ", " + std::to_string(listening) + " nodes can be called";
  for (const auto& fault : s.faults) {
    if (fault.kind == FaultKind::replay) continue;
    text += "\n  " + std::to_string(in_millis(fault.at).count()) +
            " ms: " + std::string{name_of(fault.kind)};
    for (const auto host : fault.hosts) text += " h" + std::to_string(host);
    if (fault.kind == FaultKind::signal) text += " signal " + std::to_string(fault.number);
    text += fault.lasts == kNever
                ? " for ever"
                : " for " + std::to_string(in_millis(fault.lasts).count()) + " ms";
  }
  return text;
}

}  // namespace acc::simulation
