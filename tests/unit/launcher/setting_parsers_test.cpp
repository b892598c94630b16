#include "launcher/setting_parsers.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::launcher;

TEST_CASE("streams are one number, or one for some ranks", "[launcher][parsers]") {
  CHECK(parse_streams("3")->all == agent::Streams::both);
  const auto some = parse_streams("0:1,1:3");
  REQUIRE(some.has_value());
  CHECK(some->of(LocalRank{0}) == agent::Streams::out);
  CHECK(some->of(LocalRank{1}) == agent::Streams::both);
  CHECK(some->of(LocalRank{2}) == agent::Streams::none);
  for (const auto* bad : {"4", "", "0:4", ":1", "a:1", "0:1,", "-1"})
    CHECK(!parse_streams(bad).has_value());
}

TEST_CASE("sizes have units of 1024", "[launcher][parsers]") {
  CHECK(parse_bytes("0").value() == 0);
  CHECK(parse_bytes("64k").value() == 65536);
  CHECK(parse_bytes("2G").value() == 2ULL << 30U);
  for (const auto* bad : {"", "K", "-1", "1T", "99999999999999999999", "18446744073709551615K"})
    CHECK(!parse_bytes(bad).has_value());
}

TEST_CASE("exit codes are numbers and ranges", "[launcher][parsers]") {
  const auto codes = parse_codes("2, 64-78");
  REQUIRE(codes.has_value());
  CHECK(*codes == std::vector<agent::CodeRange>{{2, 2}, {64, 78}});
  for (const auto* bad : {"x", "5-2", "300", "-1", "1-", "1,,2"})
    CHECK(!parse_codes(bad).has_value());
}

TEST_CASE("signals have names", "[launcher][parsers]") {
  CHECK(parse_signals("TERM,SIGUSR1").value() == std::vector<int>{SIGTERM, SIGUSR1});
  CHECK(!parse_signals("NOPE").has_value());
  for (const auto* name : {"KILL", "XCPU", "URG", "TSTP"}) {
    CAPTURE(name);
    CHECK(parse_signals(name).error().what == '\'' + std::string{name} +
                                                  "' isn't passed on to workers: name SIGTERM, "
                                                  "SIGINT, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2");
  }
}

TEST_CASE("a rendezvous option without = is named", "[launcher][parsers]") {
  CHECK(parse_rendezvous_conf("timeout=60, is_host=1")->at("is_host") == "1");
  CHECK(parse_rendezvous_conf("novalue").error().what.find("novalue") != std::string::npos);
}

TEST_CASE("machines are N or MIN:MAX", "[launcher][parsers]") {
  CHECK(parse_nodes("3")->max == 3);
  CHECK(parse_nodes("2:4")->min == 2);
  for (const auto* bad : {"0", "4:2", "", "a", "1:", ":2"}) CHECK(!parse_nodes(bad).has_value());
}

TEST_CASE("3:2 was called no MIN:MAX", "[launcher][parsers]") {
  CHECK(parse_nodes("3:2").error().what ==
        "'3:2': the least number of machines is above the greatest: write MIN:MAX, as 2:3");
}
