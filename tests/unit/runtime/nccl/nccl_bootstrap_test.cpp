#include "runtime/nccl/nccl_bootstrap.hpp"

#include "tests/support/rank_threads.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace acc::runtime;
using namespace acc::runtime::nccl;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

RankSetup setup(int rank) {
  return {.rank = rank,
          .version = 22809,
          .device = "0000:0" + std::to_string(rank) + ":00.0",
          .machine = "m",
          .host = "h"};
}

GroupFacts facts(int rank, int size) {
  GroupFacts made;
  made.rank = rank;
  made.size = size;
  made.name = "world";
  made.key = "job/0";
  for (int r = 0; r < size; ++r) made.ranks.push_back({.rank = r, .host = "h" + std::to_string(r)});
  return made;
}

struct Result {
  std::optional<UniqueId> id;
  std::optional<Error> error;
};

/// Every rank of `arrivals` on a thread of its own; those that are missing don't come.
std::vector<Result> meet(int size, const std::vector<RankSetup>& setups, Millis limit,
                         const std::function<UniqueId()>& make_id) {
  const auto store = make_memory_store();
  std::vector<Result> results(static_cast<std::size_t>(size));
  acc::testing::on_rank_threads(setups.size(), [&](int index) {
    const auto& mine = setups[static_cast<std::size_t>(index)];
    auto& result = results[static_cast<std::size_t>(mine.rank)];
    try {
      result.id =
          bootstrap(*store, facts(mine.rank, size), mine, Clock::now() + limit, limit, make_id);
    } catch (const Error& error) {
      result.error = error;
    }
  });
  return results;
}

UniqueId some_id() {
  UniqueId id{};
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) id.bytes[i] = static_cast<char>(i * 7);
  return id;
}

}  // namespace

SCENARIO("all come, and all get the id of rank 0", "[runtime][nccl]") {
  const auto results = meet(4, {setup(3), setup(1), setup(0), setup(2)}, 10s, some_id);
  for (const auto& result : results) {
    REQUIRE(result.id);
    CHECK(std::string(result.id->bytes, 128) == std::string(some_id().bytes, 128));
  }
}

SCENARIO("a rank does not come: every other one names it, in time", "[runtime][nccl][timing]") {
  const auto began = Clock::now();
  const auto results = meet(4, {setup(0), setup(2), setup(3)}, 300ms, some_id);
  CHECK(Clock::now() - began < 1300ms);
  for (const int rank : {0, 2, 3}) {
    const auto& error = results[static_cast<std::size_t>(rank)].error;
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::timed_out);
    CHECK(error->ranks() == std::vector<int>{1});
    CHECK_THAT(error->what(), Contains("rank 1 of 4 has not joined NCCL after 300 ms; joined: 0 "
                                       "(host h0), 2 (host h2), 3 (host h3)"));
  }
}

SCENARIO("rank 0 does not come: the others name it", "[runtime][nccl]") {
  const auto results = meet(3, {setup(1), setup(2)}, 200ms, some_id);
  for (const int rank : {1, 2}) {
    const auto& error = results[static_cast<std::size_t>(rank)].error;
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::timed_out);
    CHECK(error->ranks() == std::vector<int>{0});
  }
}

SCENARIO("rank 0 can't make an id: all hear why at once", "[runtime][nccl]") {
  const auto began = Clock::now();
  const auto results = meet(3, {setup(0), setup(1), setup(2)}, 30s, []() -> UniqueId {
    throw Error{ErrorCode::nccl, "ncclGetUniqueId: no socket"};
  });
  CHECK(Clock::now() - began < 5s);
  for (const auto& result : results) {
    REQUIRE(result.error);
    CHECK(result.error->code() == ErrorCode::nccl);
    CHECK(result.error->what() == std::string{"ncclGetUniqueId: no socket"});
  }
}

SCENARIO("a rank that can't take part is told at once, also while another one is late",
         "[runtime][nccl]") {
  auto broken = setup(2);
  broken.trouble = "CUDA: no driver on this machine";
  const auto began = Clock::now();
  const auto results = meet(4, {setup(0), broken, setup(3)}, 30s, some_id);
  CHECK(Clock::now() - began < 5s);
  for (const int rank : {0, 2, 3}) {
    const auto& error = results[static_cast<std::size_t>(rank)].error;
    REQUIRE(error);
    CHECK(error->ranks() == std::vector<int>{2});
    CHECK_THAT(error->what(), Contains("rank 2 (host h) can't use NCCL: CUDA: no driver"));
  }
}

SCENARIO("versions differ: who has which is told", "[runtime][nccl]") {
  std::vector<RankSetup> all{setup(0), setup(1), setup(2)};
  all[1].version = 21805;
  const auto error = incompatibility("world", all);
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::nccl);
  CHECK(error->ranks() == std::vector<int>{1});
  CHECK_THAT(error->what(), Contains("rank 1: 2.18.5, ranks 0,2: 2.28.9"));
}

SCENARIO("two ranks of one machine with the same device are named", "[runtime][nccl]") {
  std::vector<RankSetup> all{setup(0), setup(1), setup(2)};
  all[2].device = all[0].device;
  const auto error = incompatibility("world", all);
  REQUIRE(error);
  CHECK(error->ranks() == std::vector<int>{0, 2});
  CHECK_THAT(error->what(), Contains("ranks 0 and 2 use the same device 0000:00:00.0 of host h"));
  THEN("on two machines it is two devices") {
    all[2].machine = "another";
    CHECK_FALSE(incompatibility("world", all));
  }
}

SCENARIO("NCCL_HOSTID makes one machine several, as in NCCL", "[runtime][nccl]") {
  ::unsetenv("NCCL_HOSTID");
  const auto own = machine_id();
  CHECK_FALSE(own.empty());
  ::setenv("NCCL_HOSTID", "rank-7", 1);
  CHECK(machine_id() == "rank-7");
  ::unsetenv("NCCL_HOSTID");
}

SCENARIO("what goes through the store comes back, and nothing else is taken for it",
         "[runtime][nccl]") {
  auto mine = setup(5);
  mine.trouble = "a \"quoted\" word";
  CHECK(parse_setup(to_text(mine)) == mine);
  for (const char* bad : {"", "{", "6:ab", "1:x1:10:0:0:0:"}) CHECK_FALSE(parse_setup(bad));
}
