#include "runtime/tcp/status_text.hpp"

#include "runtime/net/fields.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;
using namespace acc::runtime::tcp;

TEST_CASE("what a host reports of a rank arrives whole", "[tcp][hosts]") {
  shm::RankStatus sent;
  sent.is_stopped = true;
  sent.arrived = 4'000'000'000;
  sent.completed = 3'999'999'999;
  sent.waits = {shm::Wait{Operation::barrier, 4'000'000'000}, shm::Wait{Operation::send, 3}};
  sent.collective = "barrier #7";
  sent.last = "it last completed barrier #6";
  const auto read = parse_status(to_text(sent));
  REQUIRE(read);
  CHECK(read->source == shm::RankStatus::Source::rank);
  CHECK(read->has_joined);
  CHECK(read->is_stopped);
  CHECK_FALSE(read->is_waiting);
  CHECK(read->arrived == sent.arrived);
  CHECK(read->completed == sent.completed);
  CHECK(read->waits[0].operation == Operation::barrier);
  CHECK(read->waits[0].of == sent.waits[0].of);
  CHECK(read->waits[1].operation == Operation::send);
  CHECK(read->waits[1].of == 3);
  CHECK(read->collective == sent.collective);
  CHECK(read->last == sent.last);
}

TEST_CASE("a report of a rank in another format is no report", "[tcp][hosts]") {
  using Fields = std::vector<std::string>;
  const Fields good{"1", "0", "1", "5", "4", "11", "2", "0", "0", "barrier #5", "it"};
  REQUIRE(parse_status(pack(good)));
  CHECK_FALSE(parse_status(""));
  CHECK_FALSE(parse_status("3:abc"));
  CHECK_FALSE(parse_status(pack(Fields{"1"})));
  for (const std::size_t at : {0U, 3U, 5U, 8U}) {
    auto bad = good;
    bad[at] = "-1";
    CHECK_FALSE(parse_status(pack(bad)));
  }
  auto bad = good;
  bad[5] = "200";  // no operation
  CHECK_FALSE(parse_status(pack(bad)));
  auto odd = good;
  odd[9] = "\x1b[31m";
  CHECK(parse_status(pack(odd))->collective.find('\x1b') == std::string::npos);
}
