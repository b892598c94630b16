#include "tests/support/thread_groups.hpp"
#include "tests/support/without_threads.hpp"
#include "tests/unit/runtime/group/scripted_backend.hpp"

#include <catch2/catch.hpp>

#include <numeric>

using namespace acc::runtime;
using acc::testing::check_without_threads;
using acc::testing::on_ranks;
using acc::testing::Scripted;
using namespace std::chrono_literals;

TEST_CASE("calls that were begun are carried out in their order, and blocking ones behind them",
          "[async]") {
  Scripted s;
  s.script->hold(true);
  std::vector<Work> works;
  for (int i = 0; i < 5; ++i) works.push_back(s.group.barrier_async());
  REQUIRE(s.script->await_calls(1));
  for (const auto& work : works) CHECK_FALSE(work.done());
  std::thread blocking{[&] { s.group.barrier(); }};
  s.script->hold(false);
  blocking.join();
  for (const auto& work : works) {
    CHECK(work.done());
    CHECK(work.error() == nullptr);
    work.wait();
  }
  REQUIRE(s.script->calls.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(s.script->calls[i].what.sequence == i + 1);
}

// Before, only this rank's group was broken: the others waited for the call until its limit.
TEST_CASE("a call for which no thread can be started left its peers waiting", "[async]") {
  check_without_threads([] {
    Scripted s;
    int told = 0;
    try {
      (void)s.group.barrier_async();
    } catch (const Error& error) {
      const std::string what = error.what();
      told = error.code() == ErrorCode::system && what.find("start a thread") != std::string::npos;
    }
    return told == 1 && s.group.broken() && s.script->aborts.size() == 1 ? 0 : 2;
  });
}

TEST_CASE("waiting for a handle has a limit of its own, and the call goes on", "[async]") {
  Scripted s;
  s.script->hold(true);
  const auto work = s.group.barrier_async();
  try {
    work.wait(20ms);
    FAIL("it can't be done");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::timed_out);
    CHECK_THAT(e.what(), Catch::StartsWith("barrier #1 isn't done after 20 ms"));
  }
  CHECK_FALSE(s.group.broken());
  s.script->hold(false);
  work.wait(10s);
  CHECK(work.done());
}

TEST_CASE("a call that fails gives its error to its handles, and those behind it the first cause",
          "[async]") {
  Scripted s;
  s.script->hold(true);
  s.script->on_call = [](const Call& call) {
    if (call.what.sequence == 2) throw Error{ErrorCode::timed_out, "nobody came", {1}};
  };
  const auto first = s.group.barrier_async();
  const auto second = s.group.barrier_async();
  const auto third = s.group.barrier_async();
  s.script->hold(false);
  first.wait();
  for (const auto& work : {second, third, second}) {
    try {
      work.wait();
      FAIL("it failed");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::timed_out);
      CHECK(e.operation() == "barrier");
      CHECK(e.sequence() == 2);
    }
    CHECK(work.done());
    CHECK(work.error() != nullptr);
  }
  CHECK(s.script->calls.size() == 2);
  CHECK_THROWS_AS(s.group.barrier_async(), Error);
}

TEST_CASE("a wrong call is refused at once, not by its handle", "[async]") {
  Scripted s;
  CHECK_THROWS_AS(s.group.all_reduce_async(nullptr, nullptr, 1, DType::f32), Error);
  CHECK_FALSE(s.group.broken());
}

TEST_CASE("a group that goes waits for what was begun", "[async]") {
  auto script = std::make_shared<acc::testing::ScriptedBackend::Script>();
  Work last;
  {
    Scripted s;
    script = s.script;
    script->hold(true);
    for (int i = 0; i < 3; ++i) last = s.group.barrier_async();
    script->hold(false);
  }
  CHECK(last.done());
  CHECK(last.error() == nullptr);
  CHECK(script->calls.size() == 3);
}

TEST_CASE("a group that goes with an exception tells its peers instead of waiting", "[async]") {
  auto script = std::make_shared<acc::testing::ScriptedBackend::Script>();
  Work work;
  try {
    Scripted s;
    script = s.script;
    script->hold(true);
    work = s.group.barrier_async();
    REQUIRE(script->await_calls(1));
    throw std::runtime_error{"the training failed"};
  } catch (const std::runtime_error&) {
  }
  CHECK(work.done());
  CHECK(work.error() != nullptr);
  REQUIRE(script->aborts.size() == 1);
  CHECK_THAT(script->aborts[0], Catch::EndsWith("rank 0 left by an exception"));
}

TEST_CASE("two ranks can send each other before either receives", "[async]") {
  on_ranks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    std::vector<std::int32_t> mine(100'000, group.rank());
    std::vector<std::int32_t> theirs(mine.size(), -1);
    const auto sent = group.send_async(mine.data(), mine.size(), DType::i32, other);
    const auto got = group.recv_async(theirs.data(), theirs.size(), DType::i32, other);
    got.wait();
    sent.wait();
    if (theirs != std::vector<std::int32_t>(mine.size(), other)) throw std::runtime_error{"wrong"};
  });
}

TEST_CASE("a message to oneself", "[async]") {
  on_ranks(1, [](ProcessGroup& group) {
    const std::int64_t sent = 42;
    std::int64_t got = 0;
    const auto going = group.send_async(&sent, 1, DType::i64, 0);
    group.recv_async(&got, 1, DType::i64, 0).wait();
    going.wait();
    if (got != 42) throw std::runtime_error{"wrong"};
  });
}

TEST_CASE("many reductions at once, waited for in any order, give what blocking ones give",
          "[async]") {
  on_ranks(4, [](ProcessGroup& group) {
    constexpr int kCalls = 50;
    std::vector<std::vector<float>> data;
    for (int c = 0; c < kCalls; ++c) {
      data.emplace_back(static_cast<std::size_t>(c));
      std::iota(data.back().begin(), data.back().end(), static_cast<float>(group.rank() + c));
    }
    std::vector<Work> works;
    for (auto& d : data)
      works.push_back(group.all_reduce_async(d.data(), d.data(), d.size(), DType::f32));
    for (int c = kCalls - 1; c >= 0; --c) works[static_cast<std::size_t>(c)].wait();
    for (int c = 0; c < kCalls; ++c)
      for (int i = 0; i < c; ++i)
        if (data[static_cast<std::size_t>(c)][static_cast<std::size_t>(i)] !=
            static_cast<float>(4 * (c + i) + 6))
          throw std::runtime_error{"wrong at call " + std::to_string(c)};
    group.barrier();
  });
}
