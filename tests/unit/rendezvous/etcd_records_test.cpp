#include "rendezvous/etcd_records.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

TEST_CASE("the keys of a job stand under its prefix", "[rendezvous][etcd]") {
  const EtcdKeys keys{"/acc-launch/", "j7"};
  CHECK(keys.leader == "/acc-launch/j7/leader");
  CHECK(keys.term == "/acc-launch/j7/term");
  CHECK(keys.table == "/acc-launch/j7/table");
}

TEST_CASE("a leader's entry comes back whole", "[rendezvous][etcd]") {
  const Leader leader{{"node \"2\"", 0xffff'ffff'ffff'ffff}, {"fe80::1%eth0", 29401}, 7};
  const auto again = parse_leader(to_etcd(leader));
  REQUIRE(again.has_value());
  CHECK(*again == leader);
}

TEST_CASE("names from etcd reached the terminal with their escape sequences",
          "[rendezvous][etcd]") {
  const auto leader = parse_leader(
      R"({"node":"a\u001b[2J","incarnation":"1","host":"h\u001b]0;x\u0007\nacc-launch: ","port":1,"term":1})");
  REQUIRE(leader.has_value());
  CHECK(leader->node.name == "a\\x1b[2J");
  CHECK(leader->at.host == "h\\x1b]0;x\\x07\\x0aacc-launch: ");
  const RoundRecord record{
      {{3, 2}, Round{7}}, {}, {{{"a", 1}, Rank{0}, 2}, {{"b\x1b[2J\n", 1}, Rank{2}, 2}}};
  const auto table = parse_table(to_bytes(record));
  REQUIRE(table.has_value());
  CHECK(table->rows.at(0).node.name == "a");
  CHECK(table->rows.at(1).node.name == "b\\x1b[2J\\x0a");
}

TEST_CASE("a name that is too long once it can be shown is refused", "[rendezvous][etcd]") {
  const std::string name(kMaxText - 1, '\x1b');
  const RoundRecord record{{{3, 2}, Round{7}}, {}, {{{name, 1}, Rank{0}, 2}}};
  CHECK(parse_round_record(to_bytes(record)).has_error());
  CHECK(parse_leader(to_etcd(Leader{{name, 1}, {"h", 1}, 1})).has_error());
}

TEST_CASE("what isn't a leader's entry is refused with the cure", "[rendezvous][etcd]") {
  const std::vector<std::string> wrong{
      "",
      "x",
      "{}",
      "[]",
      "7",
      "\xff",
      R"({"node":"a","incarnation":"1","host":"h","port":0,"term":1})",
      R"({"node":"a","incarnation":"1","host":"h","port":65536,"term":1})",
      R"({"node":"a","incarnation":"1","host":"h","port":-1,"term":1})",
      R"({"node":"a","incarnation":"1","host":"h","port":1,"term":0})",
      R"({"node":"a","incarnation":"1","host":"h","port":1,"term":4294967296})",
      R"({"node":"a","incarnation":"-1","host":"h","port":1,"term":1})",
      R"({"node":"a","incarnation":1,"host":"h","port":1,"term":1})",
      R"({"node":"a","incarnation":"1","host":"","port":1,"term":1})",
      R"({"node":7,"incarnation":"1","host":"h","port":1,"term":1})",
      R"({"node":"a","incarnation":"1","host":")" + std::string(5000, 'h') +
          R"(","port":1,"term":1})"};
  for (const auto& text : wrong) {
    INFO(text.substr(0, 100));
    const auto leader = parse_leader(text);
    REQUIRE(leader.has_error());
    CHECK_THAT(leader.error().what, Contains("etcdctl del") && Contains("--rdzv_id"));
  }
}

TEST_CASE("what isn't a table is refused with the cure", "[rendezvous][etcd]") {
  RoundRecord record{{{3, 2}, Round{7}}, {.restarts = 1}, {{{"a", 1}, Rank{0}, 2}}};
  CHECK((*parse_table(to_bytes(record)) == record));
  for (const auto& text : {std::string{}, std::string{"somebody's"}, to_bytes({})}) {
    const auto table = parse_table(text);
    REQUIRE(table.has_error());
    CHECK_THAT(table.error().what, Contains("etcdctl del") && Contains("--rdzv_id"));
  }
}

TEST_CASE("a term is a plain number", "[rendezvous][etcd]") {
  CHECK(*parse_term("4294967295") == 4294967295);
  for (const char* text : {"", "-1", "4294967296", "1 ", "0x1"})
    CHECK(parse_term(text).has_error());
}
