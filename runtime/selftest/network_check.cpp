#include "runtime/selftest/network_check.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/agent_store.hpp"
#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/store_place.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/net/mailbox.hpp"
#include "runtime/net/store.hpp"
#include "runtime/selftest/network_report.hpp"
#include "runtime/selftest/network_rounds.hpp"
#include "runtime/selftest/network_verdict.hpp"
#include "runtime/tcp/interfaces.hpp"

#include <nlohmann/json.hpp>

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/random.h>

#include <acc/error.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace acc::selftest {

using runtime::Deadline;
using runtime::ErrorCode;
using runtime::Store;

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::seconds kPatienceWithStore{60};
/// All nodes start at about the same time, but a machine may be busy.
constexpr std::chrono::seconds kNodesAppear{30};
/// Suspicious pairs are measured so often at most; the best of it counts.
constexpr int kAttempts = 3;
/// Of pairs without a connection, which costs the limit each time.
constexpr int kAttemptsOfBroken = 2;

/// Mbit/s that an interface says it does; 0: unknown, as of loopback and some virtual ones.
double speed_of(const std::string& interface) {
  const UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ethtool_cmd asked{};
  asked.cmd = ETHTOOL_GSET;
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface.c_str());
  request.ifr_data = reinterpret_cast<char*>(&asked);
  if (!fd || ::ioctl(fd.get(), SIOCETHTOOL, &request) != 0) return 0;
  const auto speed = ethtool_cmd_speed(&asked);
  return speed == 0 || speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
}

std::string random_token() {
  std::string bytes(16, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw runtime::Error{ErrorCode::system, "no random numbers"};
  std::string text;
  for (const auto byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

std::shared_ptr<Store> open_store(const runtime::LaunchEnvironment& launch) {
  if (!launch.agent_socket.empty()) {
    if (auto store = runtime::connect_agent_store(launch, kPatienceWithStore))
      return std::move(*store);
  }
  return runtime::job_store(runtime::place_of(launch), Clock::now() + kPatienceWithStore);
}

/// Which node this is, of how many.
struct Place {
  int node = 0, nodes = 1;
  bool is_first_rank = false;  ///< of its node
};

Place place_of_node(const runtime::LaunchEnvironment& launch) {
  const auto number = [](std::string_view name) -> std::optional<int> {
    const auto text = runtime::environment()(name);
    return text ? parse_number<int>(*text) : std::nullopt;
  };
  const auto node = number("GROUP_RANK");
  const auto nodes = number("GROUP_WORLD_SIZE");
  if (!node || !nodes || *node < 0 || *node >= *nodes)
    throw runtime::Error{ErrorCode::invalid_argument,
                         "--network: the launcher doesn't number its nodes (GROUP_RANK, "
                         "GROUP_WORLD_SIZE): start it by acc-test"};
  return {*node, *nodes, launch.local_rank.value_or(0) == 0};
}

// ---- what goes through the store ----

json as_json(const ProbeResult& result) {
  return {{"refused", result.refused},
          {"failure", result.failure},
          {"rtt_us", result.rtt_us},
          {"mbit_to_high", result.mbit_to_high},
          {"mbit_to_low", result.mbit_to_low}};
}

ProbeResult result_of(const std::string& text) {
  ProbeResult result;
  const auto value = json::parse(text, nullptr, false);
  if (!value.is_object()) return {"no report", "no report"};
  result.refused = value.value("refused", "no report");
  result.failure = value.value("failure", "");
  result.rtt_us = value.value("rtt_us", 0.0);
  result.mbit_to_high = value.value("mbit_to_high", 0.0);
  result.mbit_to_low = value.value("mbit_to_low", 0.0);
  return result;
}

/// Node 0 among the others, each of which does what it says.
class NetworkCheck {
 public:
  NetworkCheck(const NetworkOptions& options, Results& results)
      : results_{results},
        lookup_{runtime::environment()},
        launch_{runtime::read_launch_environment(lookup_)},
        place_{place_of_node(launch_)} {
    times_.limit = options.limit;
    prefix_ = "acc/" + std::to_string(launch_.round.value_or(0)) + "/network/";
  }

  int run() {
    if (!place_.is_first_rank) return 0;  // its node has one that measures
    if (place_.nodes < 2)
      throw runtime::Error{ErrorCode::invalid_argument,
                           "--network measures between machines, and the job has one: give "
                           "--hosts a,b, or --nnodes and start it on each"};
    store_ = open_store(launch_);
    announce();
    if (place_.node == 0) {
      call_rounds();
      await_readers();  // of the verdict, in a store that this process may serve
      // Only the launcher can end a rank that is stuck.
      const bool all_took_part =
          std::ranges::all_of(nodes_, [](const NodeFacts& node) { return node.trouble.empty(); });
      return all_took_part ? 0 : 1;
    }
    follow_rounds();
    return 0;
  }

 private:
  [[nodiscard]] std::string key(const std::string& name) const { return prefix_ + name; }

  /// From starting the connection to a report that is in the store.
  [[nodiscard]] std::chrono::milliseconds round_limit() const {
    return 4 * times_.limit + times_.pings + 2 * times_.stream + std::chrono::seconds{5};
  }

  void announce() {
    NodeFacts mine;
    mine.name = runtime::host_facts().name;
    const auto interface = runtime::choose_interface(lookup_, launch_.master_address,
                                                     Clock::now() + kPatienceWithStore);
    auto address = interface.address;
    address.set_port(0);
    auto listener = runtime::listen_at(address, 64);
    if (!listener) throw runtime::Error{ErrorCode::system, listener.error().what};
    listener_ = std::move(*listener);
    address = runtime::local_address(listener_.get());
    store_->set(key("node/" + std::to_string(place_.node)),
                line_of({{"name", mine.name},
                         {"host", address.host()},
                         {"port", address.port()},
                         {"nic_mbit", speed_of(interface.name)}}));
    if (place_.node == 0) store_->set(key("token"), random_token());
    token_ = store_->get(key("token"), Clock::now() + kNodesAppear);
  }

  /// @return false: this node hasn't appeared.
  bool learn(int node, Deadline deadline) {
    if (addresses_.contains(node)) return true;
    try {
      const auto told =
          json::parse(store_->get(key("node/" + std::to_string(node)), deadline), nullptr, false);
      if (!told.is_object()) return false;
      auto address = runtime::SocketAddress::numeric(told.value("host", ""),
                                                     told.value("port", std::uint16_t{0}));
      if (!address) return false;
      addresses_.emplace(node, *address);
      auto& facts = nodes_[static_cast<std::size_t>(node)];
      facts.name = told.value("name", "?");
      facts.address = address->host();
      facts.nic_mbit = told.value("nic_mbit", 0.0);
      return true;
    } catch (const runtime::Error& error) {
      if (error.code() != ErrorCode::timed_out) throw;
      return false;
    }
  }

  ProbeResult probe(int round, int other) {
    if (!learn(other, Clock::now() + times_.limit)) return {"its address is unknown", {}};
    return probe_pair(listener_, token_, {round, place_.node, other, addresses_.at(other)}, times_);
  }

  // ---- the other nodes ----

  void follow_rounds() {
    nodes_.resize(static_cast<std::size_t>(place_.nodes));
    for (int number = 0;; ++number) {
      // Node 0 waits for all reports of a round, some of which are late.
      const auto order = json::parse(store_->get(key("round/" + std::to_string(number)),
                                                 Clock::now() + kNodesAppear + 2 * round_limit()),
                                     nullptr, false);
      if (order.contains("verdict")) {
        results_.print_on_every_node();
        tell(order);
        runtime::Mailbox{*store_, key("read")}.put(std::to_string(place_.node));
        return;
      }
      for (const auto& pair : order.value("pairs", json::array())) {
        const int low = pair.at(0), high = pair.at(1);
        if (low != place_.node && high != place_.node) continue;
        report(number, probe(number, low == place_.node ? high : low));
      }
    }
  }

  void report(int round, const ProbeResult& result) {
    store_->set(key("report/" + std::to_string(round) + "/" + std::to_string(place_.node)),
                line_of(as_json(result)));
  }

  // ---- node 0 ----

  void call_rounds() {
    nodes_.resize(static_cast<std::size_t>(place_.nodes));
    const auto appear = Clock::now() + kNodesAppear;
    for (int node = 0; node < place_.nodes; ++node) {
      if (learn(node, appear)) continue;
      auto& facts = nodes_[static_cast<std::size_t>(node)];
      facts.name = "node rank " + std::to_string(node);
      facts.trouble = "its rank didn't appear within 30 s";
    }
    tell_names_apart();
    std::string names;
    for (const auto& node : nodes_) names += (names.empty() ? "" : ", ") + node.name;
    results_.print("         " + std::to_string(place_.nodes) + " machines: " + printable(names) +
                   "\n         each pair by itself: round trip, bandwidth there and back\n");
    if (place_.nodes <= kAllPairsUpTo) {
      for (const auto& round : all_pairs(place_.nodes)) measure(round);
    } else {
      for (const auto& round : neighbours(place_.nodes)) measure(round);
      for (int i = 0; i < 2; ++i) measure(fastest_with_slowest(speeds(), measured()));
      for (const auto& round : in_rounds(second_partners(speeds(), measured()))) measure(round);
    }
    for (int attempt = 1; attempt < kAttempts; ++attempt) {
      const auto suspects = suspicious();
      if (suspects.empty()) break;
      for (const auto& round : in_rounds(suspects)) measure(round);
    }
    conclude();
  }

  /// Two machines of a job may be on one host.
  void tell_names_apart() {
    std::map<std::string, int> count;
    for (const auto& node : nodes_) ++count[node.name];
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (count[nodes_[i].name] > 1) nodes_[i].name += " (node " + std::to_string(i) + ")";
  }

  void measure(const Round& round) {
    Round present;
    for (const auto& pair : round)
      if (is_present(pair.first) && is_present(pair.second)) present.push_back(pair);
    if (present.empty()) return;
    const int number = rounds_++;
    store_->set(key("round/" + std::to_string(number)), json{{"pairs", present}}.dump());
    const auto deadline = Clock::now() + round_limit();
    std::map<int, ProbeResult> reports;
    for (const auto& pair : present)
      if (pair.first == 0) reports[0] = probe(number, pair.second);
    for (const auto& [low, high] : present)
      for (const int node : {low, high})
        if (node != 0) reports[node] = report_of(number, node, deadline);
    for (const auto& [low, high] : present) {
      PairFacts facts{low,
                      high,
                      reports[low].refused,
                      reports[high].refused,
                      reports[low].failure,
                      reports[low].rtt_us,
                      reports[low].mbit_to_high,
                      reports[low].mbit_to_low,
                      1};
      const auto [at, is_new] = pairs_.try_emplace({low, high}, facts);
      if (!is_new) at->second = better_of(at->second, facts);
    }
  }

  [[nodiscard]] bool is_present(int node) const {
    return nodes_[static_cast<std::size_t>(node)].trouble.empty();
  }

  /// A node whose rank stopped takes part no more.
  ProbeResult report_of(int round, int node, Deadline deadline) {
    try {
      return result_of(store_->get(
          key("report/" + std::to_string(round) + "/" + std::to_string(node)), deadline));
    } catch (const runtime::Error& error) {
      if (error.code() != ErrorCode::timed_out) throw;
      nodes_[static_cast<std::size_t>(node)].trouble =
          "its rank gave no report of a round in time: it is stuck, or gone";
      return {"no report", "no report"};
    }
  }

  [[nodiscard]] std::vector<PairFacts> facts() const {
    std::vector<PairFacts> all;
    for (const auto& [pair, one] : pairs_) all.push_back(one);
    return all;
  }

  [[nodiscard]] std::set<NodePair> measured() const {
    std::set<NodePair> all;
    for (const auto& [pair, one] : pairs_) all.insert(pair);
    return all;
  }

  [[nodiscard]] std::vector<double> speeds() const {
    std::vector<double> speed(nodes_.size(), 0);
    for (const auto& [pair, one] : pairs_)
      for (const int node : {pair.first, pair.second}) {
        auto& best = speed[static_cast<std::size_t>(node)];
        best = std::max({best, std::min(one.mbit_to_high, one.mbit_to_low)});
      }
    return speed;
  }

  [[nodiscard]] std::vector<NodePair> suspicious() const {
    const auto all = facts();
    const auto verdict = judge_network(nodes_, all);
    std::vector<NodePair> pairs;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (verdict.pairs[i].trouble != Trouble::none && is_present(all[i].low) &&
          is_present(all[i].high) && (all[i].is_measured() || all[i].attempts < kAttemptsOfBroken))
        pairs.emplace_back(all[i].low, all[i].high);
    return pairs;
  }

  void conclude() {
    const auto all = facts();
    const auto network = network_json(nodes_, all, judge_network(nodes_, all), rounds_);
    store_->set(key("round/" + std::to_string(rounds_)), line_of(network));
    tell(network);
  }

  void await_readers() {
    const auto present =
        std::ranges::count_if(nodes_, [](const NodeFacts& node) { return node.trouble.empty(); });
    const auto deadline = Clock::now() + times_.limit;
    runtime::Mailbox readers{*store_, key("read")};
    try {
      for (auto node = present; node > 1; --node) (void)readers.next(deadline);
    } catch (const runtime::Error& error) {
      if (error.code() != ErrorCode::timed_out) throw;  // one of them is stuck: the verdict is told
    }
  }

  // ---- every node ----

  /// The same on each node whose acc-test was started by hand.
  void tell(const json& network) {
    const auto report = network_report(network);
    for (const auto& row : report.rows) results_.tell_row(row.line, row.json);
    for (const auto& one : report.remedies) results_.tell_remedy(one.found, one.remedy);
    results_.tell({"network", report.ok, report.found, seconds()}, report.details);
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - began_).count();
  }

  Results& results_;
  runtime::Lookup lookup_;
  runtime::LaunchEnvironment launch_;
  Place place_;
  ProbeTimes times_;
  std::string prefix_;
  std::shared_ptr<Store> store_;
  UniqueFd listener_;
  std::string token_;
  std::map<int, runtime::SocketAddress> addresses_;
  std::vector<NodeFacts> nodes_;
  std::map<NodePair, PairFacts> pairs_;
  int rounds_ = 0;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

int check_network(const NetworkOptions& options, Results& results) {
  return NetworkCheck{options, results}.run();
}

}  // namespace acc::selftest
