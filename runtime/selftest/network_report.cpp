#include "runtime/selftest/network_report.hpp"

#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>

namespace acc::selftest {

namespace {

using nlohmann::json;

const std::string& name_of(std::span<const NodeFacts> nodes, int node) {
  return nodes[static_cast<std::size_t>(node)].name;
}

json pair_json(std::span<const NodeFacts> nodes, const PairFacts& pair,
               const PairVerdict& verdict) {
  json one{{"name", "pair"},
           {"nodes", {name_of(nodes, pair.low), name_of(nodes, pair.high)}},
           {"trouble", to_string(verdict.trouble)},
           {"attempts", pair.attempts},
           {"refused", {pair.low_to_high_refused, pair.high_to_low_refused}},
           {"failure", pair.failure},
           {"rtt_us", nullptr},
           {"mbit_per_s", nullptr}};
  if (pair.is_measured()) {
    one["rtt_us"] = pair.rtt_us;
    one["mbit_per_s"] = {pair.mbit_to_high, pair.mbit_to_low};
  }
  return one;
}

json blame_json(std::span<const NodeFacts> nodes, const Blame& blame) {
  auto names = json::array();
  for (const int node : blame.nodes) names.push_back(name_of(nodes, node));
  return {{"trouble", to_string(blame.trouble)},
          {"kind", blame.nodes.size() == 1 ? "node"
                   : blame.is_directed     ? "direction"
                                           : "link"},
          {"nodes", std::move(names)},
          {"found", blame.what},
          {"remedy", blame.remedy}};
}

std::string row_line(const json& pair) {
  const std::string trouble = pair.at("trouble");
  const std::string low = pair.at("nodes").at(0), high = pair.at("nodes").at(1);
  char head[96];
  std::snprintf(head, sizeof head, "%-8s %-22s ", trouble.c_str(),
                (printable(low) + " - " + printable(high)).c_str());
  if (pair.at("rtt_us").is_null()) {
    const std::string refused = pair.at("refused").at(0), failure = pair.at("failure");
    return head + printable(failure.empty() ? refused : failure) + "\n";
  }
  char figures[96];
  std::snprintf(figures, sizeof figures, "%10s  %12s  %12s\n", time_text(pair.at("rtt_us")).c_str(),
                rate_text(pair.at("mbit_per_s").at(0)).c_str(),
                rate_text(pair.at("mbit_per_s").at(1)).c_str());
  return std::string{head} + figures;
}

// "b to c: slow"
std::string blame_text(const json& blame) {
  std::string names;
  for (const auto& node : blame.at("nodes"))
    names += (names.empty()                     ? ""
              : blame.at("kind") == "direction" ? " to "
                                                : " and ") +
             node.get<std::string>();
  return names + ": " + blame.at("trouble").get<std::string>();
}

}  // namespace

json network_json(std::span<const NodeFacts> nodes, std::span<const PairFacts> pairs,
                  const NetworkVerdict& verdict, int rounds) {
  json network{{"verdict", verdict.blamed.empty() ? "ok" : "failed"},
               {"rounds", rounds},
               {"pairs", json::array()},
               {"blamed", json::array()},
               {"nodes", json::array()},
               {"usual", {{"mbit_per_s", verdict.usual.mbit}, {"rtt_us", verdict.usual.rtt_us}}}};
  for (const auto& node : nodes)
    network["nodes"].push_back(
        {{"name", node.name}, {"address", node.address}, {"interface_mbit_per_s", node.nic_mbit}});
  for (std::size_t i = 0; i < pairs.size(); ++i)
    network["pairs"].push_back(pair_json(nodes, pairs[i], verdict.pairs[i]));
  for (const auto& blame : verdict.blamed) network["blamed"].push_back(blame_json(nodes, blame));
  return network;
}

std::string line_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

NetworkReport network_report(const json& network) {
  NetworkReport report;
  for (const auto& pair : network.at("pairs"))
    report.rows.push_back({row_line(pair), line_of(pair)});
  for (const auto& blame : network.at("blamed")) {
    report.remedies.push_back({blame.at("found"), blame.at("remedy")});
    report.found += (report.found.empty() ? "" : "; ") + blame_text(blame);
  }
  report.ok = network.at("verdict") == "ok";
  if (report.ok)
    report.found = plural(network.at("pairs").size(), "pair") + ", " +
                   rate_text(network.at("usual").at("mbit_per_s")) + " and " +
                   time_text(network.at("usual").at("rtt_us")) + " are usual";
  auto details = network;
  details.erase("pairs");  // each is a row of its own
  report.details = line_of(details);
  return report;
}

}  // namespace acc::selftest
