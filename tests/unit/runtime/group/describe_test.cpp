#include "runtime/backend.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;

namespace {

Descriptor all_reduce(std::uint64_t count, std::uint64_t sequence = 17) {
  Descriptor what;
  what.operation = Operation::all_reduce;
  what.dtype = DType::f32;
  what.count = count;
  what.sequence = sequence;
  return what;
}

}  // namespace

TEST_CASE("a call is told in the words that apply to it", "[describe]") {
  CHECK(to_string(all_reduce(1000)) == "all_reduce f32 x1000 sum #17");
  Descriptor barrier;
  barrier.operation = Operation::barrier;
  barrier.sequence = 3;
  CHECK(to_string(barrier) == "barrier #3");
  Descriptor broadcast = all_reduce(5);
  broadcast.operation = Operation::broadcast;
  broadcast.root = 2;
  CHECK(to_string(broadcast) == "broadcast f32 x5 root 2 #17");
  Descriptor allocate;
  allocate.operation = Operation::allocate;
  allocate.count = 4096;
  allocate.sequence = 1;
  CHECK(to_string(allocate) == "allocate 4096 bytes #1");
}

TEST_CASE("the call that the user wrote stands behind the one that it is made of", "[describe]") {
  auto metrics = all_reduce(10);
  metrics.within = UserCall::gather_for_metrics;
  auto trigger = all_reduce(1);
  trigger.within = UserCall::check_trigger;
  CHECK(to_string(metrics) == "all_reduce f32 x10 sum #17 (in gather_for_metrics)");
  CHECK(metrics == all_reduce(10));
  CHECK_THAT(mismatch(std::vector{trigger, metrics, metrics}, "g").what(),
             Catch::EndsWith("rank 0: all_reduce f32 x1 sum #17 (in check_trigger), ranks 1,2: x10 "
                             "(in gather_for_metrics)"));
  trigger.within = static_cast<UserCall>(255);  // of a newer version
  CHECK(to_string(trigger) == "all_reduce f32 x1 sum #17");
  STATIC_REQUIRE(static_cast<int>(UserCall::checkpoint) < 255);
}

TEST_CASE("calls that carry what is their own meet no others", "[describe]") {
  const auto within = [](UserCall call) {
    auto what = all_reduce(1);
    what.within = call;
    return what;
  };
  CHECK_FALSE(within(UserCall::save_state) == within(UserCall::gather_object));
  CHECK_FALSE(within(UserCall::split) == within(UserCall::sub_group));
  CHECK_FALSE(within(UserCall::none) == within(UserCall::cancel_backward));
  CHECK(within(UserCall::ready) == within(UserCall::backward));
  CHECK(within(UserCall::none) == within(UserCall::gather));
  const std::vector ranks{within(UserCall::save_state), within(UserCall::gather_object),
                          within(UserCall::none), within(UserCall::gather_object)};
  CHECK_THAT(mismatch(ranks, "g").what(),
             Catch::EndsWith("rank 0: all_reduce f32 x1 sum #17 (in save_state), rank 2: (called "
                             "directly), ranks 1,3: (in gather_object)"));
}

TEST_CASE("ranks are told as ranges", "[describe]") {
  CHECK(describe_ranks(std::vector{1}) == "rank 1");
  CHECK(describe_ranks(std::vector{5, 0, 2, 1}) == "ranks 0-2,5");
  CHECK(describe_ranks(std::vector{0, 1}) == "ranks 0,1");
}

TEST_CASE("a mismatch names the ranks unlike the others, and only what differs", "[describe]") {
  SECTION("counts") {
    const auto e =
        mismatch(std::vector{all_reduce(1000), all_reduce(900), all_reduce(1000)}, "world");
    CHECK(std::string{e.what()} ==
          "the ranks of group 'world' called different things: "
          "rank 1: all_reduce f32 x900 sum #17, ranks 0,2: x1000");
    CHECK(e.ranks() == std::vector{1});
    CHECK(e.code() == ErrorCode::mismatch);
    CHECK(e.operation() == "all_reduce");
    CHECK(e.sequence() == 17);
  }
  SECTION("types and reductions") {
    auto other = all_reduce(10);
    other.dtype = DType::i32;
    other.reduce = ReduceOp::max;
    const auto e = mismatch(std::vector{other, all_reduce(10), all_reduce(10)}, "world");
    CHECK_THAT(e.what(), Catch::EndsWith("rank 0: all_reduce i32 x10 max #17, ranks 1,2: f32 sum"));
  }
  SECTION("other operations are told in full") {
    Descriptor barrier;
    barrier.operation = Operation::barrier;
    barrier.sequence = 17;
    const auto e =
        mismatch(std::vector{all_reduce(10), all_reduce(10), barrier, all_reduce(9)}, "g");
    CHECK_THAT(
        e.what(),
        Catch::EndsWith("rank 2: barrier #17, rank 3: all_reduce f32 x9 sum #17, ranks 0,1: x10"));
    CHECK(e.ranks() == std::vector{2, 3});
  }
  SECTION("three ranks that all differ: none is the common one") {
    const auto e = mismatch(std::vector{all_reduce(1), all_reduce(2), all_reduce(3)}, "g");
    CHECK(e.ranks() == std::vector{0, 1, 2});
  }
  SECTION("two ranks: the lower one counts as the common one") {
    CHECK(mismatch(std::vector{all_reduce(1), all_reduce(2)}, "g").ranks() == std::vector{1});
  }
  SECTION("the same sum of other counts") {
    auto a = all_reduce(10);
    a.operation = Operation::all_gather;
    auto b = a;
    a.digest = 1;
    b.digest = 2;
    CHECK_THAT(mismatch(std::vector{a, b, b}, "g").what(),
               Catch::EndsWith("ranks 1,2: other counts"));
  }
}
