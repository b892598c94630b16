#include "runtime/shm/blame.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;
using namespace acc::runtime::shm;
using Catch::Matchers::Contains;

namespace {

using Ranks = std::vector<int>;

RankStatus at_work(std::uint32_t completed = 4) {
  RankStatus made;
  made.source = RankStatus::Source::rank;
  made.arrived = made.completed = completed;
  made.last = "it last completed barrier #" + std::to_string(completed);
  return made;
}
RankStatus waits_in(Operation operation, std::uint32_t of, std::size_t lane = 0) {
  auto made = at_work();
  made.is_waiting = true;
  made.waits[lane] = {operation, of};
  return made;
}
RankStatus in_barrier(std::uint32_t number) {
  auto made = waits_in(Operation::barrier, number);
  made.arrived = number;
  made.completed = number - 1;
  made.collective = "barrier #" + std::to_string(number);
  return made;
}
RankStatus stopped(RankStatus made) {
  made.is_stopped = true;
  return made;
}
RankStatus of_silent_host(int leader, bool is_leader) {
  RankStatus made;
  made.behind = leader;
  if (is_leader) made.source = RankStatus::Source::silent;
  return made;
}
constexpr Wait kRecv{Operation::recv, 1};

Ranks ranks_of(const std::vector<Waited>& waited) {
  Ranks all;
  for (const auto& one : waited) all.push_back(one.rank);
  return all;
}

std::string told(const Blame& found, const std::vector<RankStatus>& all) {
  return shm::describe(found, all,
                       [](int rank) { return "rank " + std::to_string(rank) + " (x)"; });
}

}  // namespace

TEST_CASE("who is to blame is at the end of the chain of waiting ranks", "[runtime][shm][blame]") {
  struct Row {
    std::string name;
    std::vector<RankStatus> all;
    Ranks first, culprits, between;
    std::string text;
  };
  const auto recv = [](std::uint32_t of) { return waits_in(Operation::recv, of); };
  const auto send = [](std::uint32_t of) { return waits_in(Operation::send, of, 1); };
  const std::vector<Row> rows{
      {"no chain",
       {recv(1), at_work()},
       {1},
       {1},
       {},
       "rank 1 (x) has not sent; it last completed barrier #4"},
      {"a chain",
       {recv(1), recv(2), send(3), at_work()},
       {1},
       {3},
       {1, 2},
       "rank 3 (x) has not received what rank 2 sent before; it last completed barrier #4; "
       "rank 1 (x) itself waits in recv from rank 2; rank 2 (x) itself waits in send to rank 3"},
      {"a stopped rank seems to wait",
       {recv(1), stopped(recv(2)), at_work()},
       {1},
       {1},
       {},
       "rank 1 (x) has not sent; it last completed barrier #4"},
      {"two wait for each other",
       {recv(1), recv(0)},
       {1},
       {0, 1},
       {},
       "ranks 0,1 wait for each other: rank 0 (x) in recv from rank 1, rank 1 (x) in recv from "
       "rank 0"},
      {"a chain to a cycle",
       {recv(1), recv(2), recv(3), send(2)},
       {1},
       {2, 3},
       {1},
       "ranks 2,3 wait for each other: rank 2 (x) in recv from rank 3, rank 3 (x) in send to rank "
       "2; rank 1 (x) itself waits in recv from rank 2"},
      {"a collective",
       {recv(1), in_barrier(5), at_work()},
       {1},
       {2},
       {1, 0},
       "rank 2 (x) has not arrived; it last completed barrier #4; rank 1 (x) itself waits in "
       "barrier #5 for ranks 0,2; rank 0 (x) itself waits in recv from rank 1"},
      {"a silent host",
       {recv(1), recv(3), of_silent_host(2, true), of_silent_host(2, false)},
       {1},
       {2},
       {1, 3},
       "rank 2 (x) doesn't answer: it is stopped, or its host is cut off; rank 1 (x) itself waits "
       "in recv from rank 3; nothing is known of rank 3 (x)"},
      {"nothing is known of the rank",
       {recv(1), {}},
       {1},
       {1},
       {},
       "rank 1 (x) has not sent; nothing more is known of it"},
      {"it says that it waits for itself, or for no rank",
       {recv(1), recv(1)},
       {1},
       {1},
       {},
       "rank 1 (x) has not sent; it last completed barrier #4"},
      {"it says that it waits for no rank of the group",
       {recv(1), recv(77)},
       {1},
       {1},
       {},
       "rank 1 (x) has not sent; it last completed barrier #4"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const auto found = blame(row.all, kRecv, row.first);
    CHECK(found.ranks() == row.culprits);
    CHECK(ranks_of(found.between) == row.between);
    CHECK(told(found, row.all) == row.text);
  }
}

TEST_CASE("of a long chain the message names the nearest ranks", "[runtime][shm][blame]") {
  std::vector<RankStatus> all;
  for (std::uint32_t r = 0; r < 511; ++r) all.push_back(waits_in(Operation::recv, r + 1));
  all.push_back(at_work());
  const auto found = blame(all, kRecv, {1});
  CHECK(found.ranks() == Ranks{511});
  CHECK_THAT(told(found, all), Contains("rank 511 (x) has not sent to rank 510; ") &&
                                   Contains("rank 16 (x) itself") && !Contains("rank 17 (x)") &&
                                   Contains("; 494 more wait themselves"));
}

TEST_CASE("who is late in a collective", "[runtime][shm][blame]") {
  CHECK(late_in(std::vector{in_barrier(5), at_work(4), at_work(4)}, 5) == Ranks{1, 2});
  auto busy = in_barrier(5);
  busy.is_waiting = false;
  CHECK(late_in(std::vector{in_barrier(5), busy, at_work(5)}, 5) == Ranks{1});
  CHECK(late_in(std::vector{busy, stopped(in_barrier(5)), at_work(5)}, 5) == Ranks{1});
  CHECK(late_in(std::vector{in_barrier(5), of_silent_host(1, true), of_silent_host(1, false)}, 5) ==
        Ranks{1});
  auto after_wrap = at_work(0xffffffff);
  CHECK(late_in(std::vector{in_barrier(1), after_wrap}, 1) == Ranks{1});
}

TEST_CASE("a wait counts when it has lasted, and messages are read whole", "[runtime][shm]") {
  PublishedWait wait{};
  CHECK(wait.lasting().operation == Operation::none);
  wait.begin({Operation::recv, 4'000'000'000});
  while (wait.lasting().operation == Operation::none) {
  }
  CHECK(wait.lasting().operation == Operation::recv);
  CHECK(wait.lasting().of == 4'000'000'000);
  wait.end();
  CHECK(wait.lasting().operation == Operation::none);

  LastMessage last{};
  CHECK_FALSE(last.get());
  for (std::uint64_t i = 1; i <= 3; ++i) {
    last.set({i, 10 * i, 0, -1, Operation::send, DType::f32, {}, {}}, static_cast<int>(i));
    const auto read = last.get();
    REQUIRE(read);
    CHECK(read->what.sequence == i);
    CHECK(read->what.count == 10 * i);
    CHECK(read->peer == static_cast<int>(i));
  }
}
