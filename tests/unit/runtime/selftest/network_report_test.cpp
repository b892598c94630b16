#include "runtime/selftest/network_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace acc::selftest {
namespace {

using nlohmann::json;

const std::vector<NodeFacts> kNodes{
    {"a", "10.0.0.1", 10'000, ""}, {"b", "10.0.0.2", 10'000, ""}, {"c", "10.0.0.3", 0, ""}};

std::vector<PairFacts> three_pairs() {
  return {{0, 1, "", "", "", 52, 9400, 9300, 1},
          {0, 2, "", "", "", 50, 9400, 9400, 1},
          {1, 2, "", "", "", 51, 9400, 9400, 3}};
}

json judged(const std::vector<PairFacts>& pairs) {
  return network_json(kNodes, pairs, judge_network(kNodes, pairs), 4);
}

}  // namespace

TEST_CASE("a network without trouble is reported with what is usual in it", "[selftest][network]") {
  const auto report = network_report(judged(three_pairs()));
  CHECK(report.ok);
  CHECK(report.found == "3 pairs, 9.4 Gbit/s and 0.050 ms are usual");
  CHECK(report.remedies.empty());
  REQUIRE(report.rows.size() == 3);
  CHECK(report.rows[0].line ==
        "ok       a - b                    0.052 ms    9.4 Gbit/s    9.3 Gbit/s\n");
  CHECK(json::parse(report.rows[2].json)["attempts"] == 3);
}

TEST_CASE("each pair is reported once, as a row", "[selftest][network]") {
  const auto details = json::parse(network_report(judged(three_pairs())).details);
  CHECK_FALSE(details.contains("pairs"));
  CHECK(details["rounds"] == 4);
  CHECK(details["nodes"][1]["interface_mbit_per_s"] == 10'000);
}

TEST_CASE("a slow direction, a link and a node are named differently", "[selftest][network]") {
  auto pairs = three_pairs();
  pairs[2].mbit_to_low = 50;
  CHECK(network_report(judged(pairs)).found == "c to b: slow");
  pairs[2].mbit_to_high = 50;
  CHECK(network_report(judged(pairs)).found == "b and c: slow");
  pairs[1].mbit_to_high = pairs[1].mbit_to_low = 50;
  const auto report = network_report(judged(pairs));
  CHECK_FALSE(report.ok);
  CHECK(report.found == "c: slow");
  REQUIRE(report.remedies.size() == 1);
  CHECK(report.remedies[0].found.starts_with("c is slow with every partner"));
}

TEST_CASE("the row of a pair without figures says why", "[selftest][network]") {
  auto pairs = three_pairs();
  pairs[2].low_to_high_refused = pairs[2].high_to_low_refused = "no route\nto host";
  const auto report = network_report(judged(pairs));
  CHECK(report.rows[2].line == "broken   b - c                  no route\\x0ato host\n");
  CHECK(json::parse(report.rows[2].json)["rtt_us"].is_null());
  pairs[2] = {1, 2, "", "", "reset by peer", 0, 0, 0, 1};
  CHECK(network_report(judged(pairs)).rows[2].line ==
        "broken   b - c                  reset by peer\n");
}

TEST_CASE("all nodes print the same report, whatever bytes a name has", "[selftest][network]") {
  auto nodes = kNodes;
  nodes[1].name = "b\xff\x1b[31m";
  auto pairs = three_pairs();
  pairs[2].rtt_us = 90'000;
  const auto sent = network_json(nodes, pairs, judge_network(nodes, pairs), 1);
  const auto received = json::parse(line_of(sent));
  const auto report = network_report(received);
  CHECK(report.rows[2].line.find('\x1b') == std::string::npos);
  CHECK(report.rows[2].line.starts_with("delayed  "));
  CHECK(line_of(received) == line_of(sent));
  CHECK(network_report(received).details == network_report(sent).details);
}

}  // namespace acc::selftest
