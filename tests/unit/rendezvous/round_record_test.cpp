#include "rendezvous/round_record.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

RoundRecord sample() {
  RoundRecord record{{{3, 0}, Round{7}}, {.restarts = 5, .budget_used = 2}, {}};
  record.rows.push_back({{"node-1", 0xfeedface12345678}, Rank{0}, 8});
  record.rows.push_back({{"", 2}, Rank{8}, 4});
  return record;
}

}  // namespace

TEST_CASE("the record of a round comes back as it was", "[rendezvous][etcd]") {
  const auto back = parse_round_record(to_bytes(sample()));
  REQUIRE(back.has_value());
  CHECK(*back == sample());
}

TEST_CASE("a record is refused, whatever is wrong with it", "[rendezvous][etcd]") {
  const std::string whole = to_bytes(sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = parse_round_record(std::string_view{whole}.substr(0, size));
    REQUIRE_FALSE(cut.has_value());
    CHECK(cut.error().code == Errc::malformed);
  }
  auto other = whole;
  other[0] = 2;
  CHECK_THAT(parse_round_record(other).error().what, Contains("format 2"));
  auto nobody = sample();
  nobody.rows.clear();
  CHECK_THAT(parse_round_record(to_bytes(nobody)).error().what, Contains("names no node"));
  CHECK_FALSE(parse_round_record(std::string(100, '\xff')).has_value());
}

TEST_CASE("the record of the largest job fits into a key of etcd", "[rendezvous][etcd]") {
  constexpr std::size_t kLargestKey = 1024 * 1024;
  RoundRecord record;
  for (std::uint32_t i = 0; i < 10'000; ++i)
    record.rows.push_back({{"cluster-a-rack-17-gpu-node-" + std::to_string(i), i}, Rank{i * 8}, 8});
  CHECK(to_bytes(record).size() < kLargestKey);
}
