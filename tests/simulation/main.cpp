#include "tests/simulation/plant.hpp"
#include "tests/simulation/scenario.hpp"
#include "tests/simulation/violation.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// acc-simulation: runs seeds and reports those that broke a promise.
namespace acc::simulation {

namespace {

constexpr std::string_view kUsage =
    "usage: run --seeds N [--first S] --nodes K [--large] [--plant NAME] [--verbose]\n"
    "       run --quiet\n"
    "  --seeds N     so many seeds, one after the other\n"
    "  --first S     begin with this one (default 1)\n"
    "  --nodes K     each seed has 2 to K nodes (default 16)\n"
    "  --large       each seed has exactly K nodes: a worker fails, the coordinator is lost\n"
    "  --plant NAME  with this bug switched on; succeeds if it is found\n"
    "  --successions  each seed has exactly K nodes: coordinators are lost one after the other\n"
    "  --etcd        coordinators are chosen by an etcd, which has faults, too\n"
    "  --quiet       without faults, at several sizes: counts the messages of a node and round\n"
    "  --verbose     the history of each seed\n";

struct Arguments {
  std::uint64_t seeds = 1;
  std::uint64_t first = 1;
  std::uint32_t nodes = 16;
  bool large = false;
  bool successions = false;
  bool quiet = false;
  bool etcd = false;
  bool verbose = false;
  std::string plant;
};

std::optional<Arguments> read(const std::vector<std::string_view>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto word = words[i];
    const auto value = [&] { return i + 1 < words.size() ? std::string{words[++i]} : ""; };
    try {
      if (word == "--seeds") {
        arguments.seeds = std::stoull(value());
      } else if (word == "--first") {
        arguments.first = std::stoull(value());
      } else if (word == "--nodes") {
        arguments.nodes = static_cast<std::uint32_t>(std::stoul(value()));
      } else if (word == "--plant") {
        arguments.plant = value();
      } else if (word == "--successions") {
        arguments.successions = true;
      } else if (word == "--large") {
        arguments.large = true;
      } else if (word == "--etcd") {
        arguments.etcd = true;
      } else if (word == "--quiet") {
        arguments.quiet = true;
      } else if (word == "--verbose") {
        arguments.verbose = true;
      } else {
        return std::nullopt;
      }
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  return arguments;
}

Scenario scenario_of(const Arguments& arguments, std::uint64_t seed) {
  if (arguments.etcd) return etcd_scenario(seed, arguments.nodes);
  if (arguments.successions) return successions_scenario(seed, arguments.nodes);
  return arguments.large ? large_scenario(seed, arguments.nodes)
                         : draw_scenario(seed, arguments.nodes);
}

void print_repeat(const Arguments& arguments, std::uint64_t seed) {
  std::cout << "repeat: tests/simulation/run --seeds 1 --first " << seed << " --nodes "
            << arguments.nodes << (arguments.large ? " --large" : "")
            << (arguments.successions ? " --successions" : "") << (arguments.etcd ? " --etcd" : "")
            << (arguments.plant.empty() ? "" : " --plant " + arguments.plant) << " --verbose\n";
}

void show_history(const Scenario& scenario) {
  World world{scenario, true};
  std::string end = "all promises kept";
  try {
    world.run();
  } catch (const Violation& violation) {
    end = violation.what();
  }
  std::cout << "seed " << scenario.seed << ": " << describe(scenario) << '\n';
  world.history().print(std::cout);
  std::cout << "=> " << end << "\n";
}

/// The violation, if there is one.
std::optional<std::string> play(const Scenario& scenario, Stats& stats) {
  try {
    World world{scenario, false};
    world.run();
    stats.add(world.stats());
    return std::nullopt;
  } catch (const Violation& violation) {
    return violation.what();
  }
}

void print(const Stats& stats, std::uint64_t seeds, double seconds) {
  std::cout << seeds << " seeds in " << seconds << " s: " << stats.events << " events, "
            << stats.frames << " frames, " << stats.rounds << " rounds, " << stats.elections
            << " elections, " << stats.step_downs << " step-downs, " << stats.leases_over
            << " leases over, " << stats.given_up << " agents gave up, " << stats.replays
            << " replays, " << stats.writes << " checkpoints, " << stats.refused_writes
            << " refused, " << stats.doubts << " clocks in doubt, " << stats.kernel_kills
            << " frozen nodes ended by the kernel; jobs: " << stats.succeeded << " succeeded, "
            << stats.closed << " ended otherwise\n";
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A search that finds nothing because nothing happens would be worthless.
bool is_worth_something(const Arguments& arguments, const Stats& stats) {
  if (arguments.large || arguments.successions || arguments.seeds < 1'000) return true;
  const auto share = arguments.seeds / 20;
  const bool is = stats.elections >= share && stats.leases_over >= share &&
                  stats.rounds >= arguments.seeds && stats.succeeded >= 6 * share &&
                  stats.step_downs >= share / 4 && stats.writes >= arguments.seeds &&
                  stats.refused_writes >= share / 50 && stats.doubts >= share &&
                  stats.kernel_kills >= share / 4;
  if (!is) std::cout << "FAILED: too little happened in these seeds\n";
  return is;
}

/// True if every lost coordinator had a successor within the promised time.
bool are_quick(const Arguments& arguments, Stats& stats) {
  auto& all = stats.successions;
  const auto share = [](const Succession& s) {
    return static_cast<double>(s.took.count()) / static_cast<double>(s.bound.count());
  };
  std::ranges::sort(all, {}, share);
  const auto late = std::ranges::count_if(all, [&](const auto& s) { return share(s) > 1; });
  std::cout << all.size() << " coordinators lost of " << arguments.nodes
            << " nodes; succeeded within lease + 1 s times";
  for (const double part : {0.5, 0.9, 0.99, 1.0}) {
    const auto at = static_cast<std::size_t>(part * static_cast<double>(all.size() - 1));
    std::cout << (part < 1 ? " " : ", at most ") << share(all[at]);
  }
  std::cout << " (50, 90, 99 of 100); late: " << late << '\n';
  if (late == 0) return true;
  std::cout << "FAILED: seed " << all.back().seed << ": the worst\n";
  print_repeat(arguments, all.back().seed);
  return false;
}

int play_seeds(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  Stats stats;
  for (auto seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed) {
    const auto scenario = scenario_of(arguments, seed);
    if (arguments.verbose) show_history(scenario);
    const auto violation = play(scenario, stats);
    if (!violation) continue;
    if (!arguments.plant.empty()) {
      std::cout << arguments.plant << ": found with seed " << seed << " ("
                << seed - arguments.first + 1 << " tried): " << *violation << '\n';
      return 0;
    }
    if (!arguments.verbose) show_history(scenario);
    std::cout << "FAILED: seed " << seed << ": " << *violation << '\n';
    print_repeat(arguments, seed);
    return 1;
  }
  print(stats, arguments.seeds, seconds_since(begin));
  if (arguments.successions && (stats.successions.empty() || !are_quick(arguments, stats)))
    return 1;
  if (arguments.plant.empty()) return is_worth_something(arguments, stats) ? 0 : 1;
  std::cout << "FAILED: " << arguments.plant << " was not found\n";
  return 1;
}

// Join, Welcome, Assigned, Ready, Start, Completed, Close; or, in a round that fails, Stop and
// Stopped instead of the last two. The node whose worker failed sends WorkerFailed and Stopped
// before the order, and Stopped once more in answer to it.
int count_quiet_messages(bool verbose) {
  constexpr std::uint32_t kMost = 9;
  constexpr std::uint32_t kRestarts = 2;
  std::optional<std::uint32_t> first;
  for (const std::uint32_t nodes : {2U, 16U, 128U, 1'024U}) {
    if (verbose && nodes == 2) show_history(quiet_scenario(nodes, kRestarts));
    World world{quiet_scenario(nodes, kRestarts), false};
    try {
      world.run();
    } catch (const Violation& violation) {
      std::cout << "FAILED: " << nodes << " nodes: " << violation.what() << '\n';
      return 1;
    }
    const auto most = world.most_frames_per_node_and_round();
    const auto rounds = world.checker().rounds();
    std::cout << nodes << " nodes: " << rounds << " rounds, at most " << most
              << " messages of a node and round beside heartbeats, " << world.frames_but_beats()
              << " in all, " << world.stats().frames << " with heartbeats\n";
    if (rounds != kRestarts + 1 || most > kMost || most != first.value_or(most)) {
      std::cout << "FAILED: expected " << kRestarts + 1 << " rounds, and as many messages at every "
                << "size, at most " << kMost << '\n';
      return 1;
    }
    first = most;
  }
  return 0;
}

int run(const std::vector<std::string_view>& words) {
  const auto arguments = read(words);
  if (!arguments) {
    std::cerr << kUsage;
    return 2;
  }
  if (!arguments->plant.empty() && !plant(arguments->plant)) {
    std::cerr << "there is no bug '" << arguments->plant << "' to plant in this program; known:";
    for (const auto& name : plants()) std::cerr << ' ' << name;
    std::cerr << '\n';
    return 2;
  }
  return arguments->quiet ? count_quiet_messages(arguments->verbose) : play_seeds(*arguments);
}

}  // namespace

}  // namespace acc::simulation

int main(int argc, char** argv) {
  return acc::simulation::run(std::vector<std::string_view>{argv + 1, argv + argc});
}
