#include "tests/support/slow_yields.hpp"
#include "tests/support/tally.hpp"
#include "tests/unit/runtime/shm/verification.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <thread>

using namespace acc::runtime;
using namespace acc::runtime::testing;
using acc::testing::SlowYields;
using acc::testing::Tally;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

constexpr Operation kCollectives[] = {
    Operation::all_reduce,     Operation::reduce,     Operation::broadcast,
    Operation::all_gather,     Operation::gather,     Operation::scatter,
    Operation::reduce_scatter, Operation::all_to_all, Operation::barrier};

bool has_root(Operation operation) {
  return operation == Operation::reduce || operation == Operation::broadcast ||
         operation == Operation::gather || operation == Operation::scatter;
}

/// With buffers that are large enough for anything.
void call(LocalRank& rank, Operation operation, std::size_t count, DType type = DType::f32,
          ReduceOp op = ReduceOp::sum, int root = 0) {
  const auto bytes = count * 8 * static_cast<std::size_t>(rank.size()) + 8;
  std::vector<std::byte> send(bytes);
  std::vector<std::byte> recv(bytes);
  if (operation == Operation::barrier) return rank.barrier();
  auto* const to = operation == Operation::broadcast ? send.data() : recv.data();
  rank.run(operation, send.data(), to, count, type, op, has_root(operation) ? root : -1);
}

void expect_mismatch(int ranks, const Body& body) {
  const auto outcomes = as_threads(ranks, body);
  for (const auto& outcome : outcomes) {
    INFO(outcome.what);
    CHECK(outcome.threw);
    CHECK(outcome.code == ErrorCode::mismatch);
  }
}

}  // namespace

TEST_CASE("ranks that call different operations all get mismatch, whichever two they are",
          "[runtime][shm]") {
  const auto one = GENERATE(from_range(std::begin(kCollectives), std::end(kCollectives)));
  for (const auto other : kCollectives) {
    if (one == other) continue;
    for (const std::size_t count : {std::size_t{4}, std::size_t{100'000}}) {
      CAPTURE(to_string(one), to_string(other), count);
      expect_mismatch(3,
                      [&](LocalRank& rank) { call(rank, rank.rank() == 1 ? other : one, count); });
    }
  }
}

TEST_CASE("count, type, reduction and root must be the same", "[runtime][shm]") {
  const std::size_t count = GENERATE(10u, 100'000u);
  CAPTURE(count);
  for (const auto operation : kCollectives) {
    if (operation == Operation::barrier) continue;
    CAPTURE(to_string(operation));
    expect_mismatch(
        2, [&](LocalRank& rank) { call(rank, operation, rank.rank() == 0 ? count : count - 1); });
    expect_mismatch(3, [&](LocalRank& rank) {
      call(rank, operation, count, rank.rank() == 2 ? DType::i32 : DType::f32);
    });
    if (has_root(operation))
      expect_mismatch(3, [&](LocalRank& rank) {
        call(rank, operation, count, DType::f32, ReduceOp::sum, rank.rank() == 0 ? 0 : 1);
      });
  }
  for (const auto operation : {Operation::all_reduce, Operation::reduce, Operation::reduce_scatter})
    expect_mismatch(3, [&](LocalRank& rank) {
      call(rank, operation, count, DType::f32, rank.rank() == 0 ? ReduceOp::max : ReduceOp::sum);
    });
}

TEST_CASE("a mismatch names each rank's call and touches no buffer", "[runtime][shm]") {
  const auto outcomes = as_threads(3, [](LocalRank& rank) {
    Buffer data{std::size_t{4000}};
    const std::size_t count = rank.rank() == 1 ? 900 : 1000;
    try {
      rank.all_reduce(data.data(), count, DType::f32);
    } catch (...) {
      if (!data.untouched()) throw std::runtime_error{"data was moved"};
      throw;
    }
  });
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome.code == ErrorCode::mismatch);
    CHECK_THAT(outcome.what, Contains("x900") && Contains("x1000") && Contains("all_reduce"));
    CHECK(outcome.ranks == std::vector<int>{1});
    CHECK(outcome.operation == "all_reduce");
    CHECK(outcome.sequence == 1);
  }
}

TEST_CASE("two that differ don't wait for a third that is late", "[runtime][shm]") {
  std::atomic<int> failed{0};
  const auto outcomes = as_threads(3, [&](LocalRank& rank) {
    if (rank.rank() == 2)
      while (failed < 2) std::this_thread::yield();
    try {
      call(rank, rank.rank() == 0 ? Operation::barrier : Operation::all_reduce, 5);
    } catch (...) {
      ++failed;
      throw;
    }
  });
  for (const auto& outcome : outcomes) CHECK(outcome.code == ErrorCode::mismatch);
}

TEST_CASE("without the check only what is the same works, and nothing is compared",
          "[runtime][shm]") {
  CHECK_NOTHROW(on_threads(2, [](LocalRank& rank) { call(rank, Operation::all_reduce, 10); },
                           {.check = false}));
}

TEST_CASE("every waiting rank names who has not arrived and what that one did last",
          "[runtime][shm]") {
  const std::size_t count = GENERATE(1u, 100'000u);
  std::atomic<int> failed{0};
  const auto outcomes = as_threads(4, [&](LocalRank& rank) {
    call(rank, Operation::broadcast, 7, DType::i32, ReduceOp::sum, 2);
    rank.limit = 900ms;
    if (rank.rank() == 2)
      while (failed < 3) std::this_thread::yield();
    try {
      call(rank, Operation::all_reduce, count);
    } catch (...) {
      ++failed;
      throw;
    }
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.what);
    CHECK(outcome.code == ErrorCode::timed_out);
    CHECK(outcome.ranks == std::vector<int>{2});
    CHECK_THAT(outcome.what, Contains("timed out after 900 ms") && Contains("rank 2 (host here") &&
                                 Contains("last completed broadcast i32 x7"));
    CHECK(outcome.operation == "all_reduce");
    CHECK(outcome.sequence == 2);
  }
}

TEST_CASE("a receiver names the sender that doesn't send, and a sender who doesn't receive",
          "[runtime][shm]") {
  const bool sends = GENERATE(false, true);
  std::atomic<bool> failed{false};
  const auto outcomes = as_threads(2, [&](LocalRank& rank) {
    rank.limit = 900ms;
    if (rank.rank() == 1) {
      while (!failed) std::this_thread::yield();
      return rank.barrier();
    }
    std::vector<int> data(100'000);
    try {
      if (sends)
        rank.send(data.data(), data.size(), DType::i32, 1);
      else
        rank.recv(data.data(), data.size(), DType::i32, 1);
    } catch (...) {
      failed = true;
      throw;
    }
  });
  CHECK(outcomes[0].code == ErrorCode::timed_out);
  CHECK(outcomes[0].ranks == std::vector<int>{1});
  CHECK_THAT(outcomes[0].what,
             Contains(sends ? "has not received" : "has not sent") && Contains("rank 1"));
  CHECK(outcomes[1].threw);  // broken for all
}

TEST_CASE("a message of another size or type is a mismatch for the receiver", "[runtime][shm]") {
  const auto outcomes = as_threads(2, [&](LocalRank& rank) {
    int data[4] = {};
    if (rank.rank() == 0)
      rank.send(data, 3, DType::i32, 1);
    else
      rank.recv(data, 4, DType::i32, 0);
  });
  CHECK_FALSE(outcomes[0].threw);  // it was buffered
  CHECK(outcomes[1].code == ErrorCode::mismatch);
  CHECK_THAT(outcomes[1].what, Contains("x3") && Contains("x4"));
}

TEST_CASE("after an error each later call fails at once with the first cause", "[runtime][shm]") {
  const auto outcomes = as_threads(2, [](LocalRank& rank) {
    try {
      call(rank, rank.rank() == 0 ? Operation::barrier : Operation::all_reduce, 5);
    } catch (const Error&) {
      call(rank, Operation::all_gather, 5);
    }
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == ErrorCode::mismatch);
    CHECK_THAT(outcome.what, Contains("barrier") && Contains("all_reduce"));
    CHECK(outcome.operation == "all_gather");
  }
}

TEST_CASE("abort wakes all ranks, whatever they wait in, and says why", "[runtime][shm]") {
  const auto operation = GENERATE(Operation::barrier, Operation::all_reduce, Operation::recv);
  std::array<std::atomic<Backend*>, 3> backends{};
  const auto outcomes = as_threads(3, [&](LocalRank& rank) {
    backends[static_cast<std::size_t>(rank.rank())] = &rank.backend();
    if (rank.rank() != 0) {
      std::vector<float> data(100'000);
      if (operation == Operation::recv) return rank.recv(data.data(), 5, DType::f32, 0);
      return call(rank, operation, 1000);
    }
    for (const std::size_t r : {1u, 2u})
      while (backends[r] == nullptr || backends[r].load()->waits_for().empty())
        std::this_thread::yield();
    const Error cause{ErrorCode::aborted, "the loss is no number"};
    rank.backend().abort(cause);
    rank.backend().abort(Error{ErrorCode::aborted, "a second time"});
    rank.barrier();
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.what);
    CHECK(outcome.code == ErrorCode::aborted);
    CHECK_THAT(outcome.what, Contains("the loss is no number"));
  }
}

TEST_CASE("abort wakes a waiter on a busy machine, too", "[runtime][shm]") {
  Tally yields, in_second;
  int before_abort = 0;
  std::atomic<Backend*> waiter{nullptr};
  const auto outcomes = as_threads(2, [&](LocalRank& rank) {
    const auto sleeps = [&] { return waiter != nullptr && !waiter.load()->waits_for().empty(); };
    if (rank.rank() == 0) {
      waiter = &rank.backend();
      rank.barrier();  // every eighth wait, and the first, is timed: not the next one
      in_second.add();
      const SlowYields busy{yields};
      return rank.barrier();
    }
    while (!sleeps()) std::this_thread::yield();
    rank.barrier();
    in_second.await(1);
    // If yields were slow in the first barrier, it sleeps at once in the second.
    while (yields.count() == 0 && !sleeps()) std::this_thread::yield();
    rank.backend().abort(Error{ErrorCode::aborted, "the loss is no number"});
    before_abort = yields.count();
  });
  CHECK(outcomes[0].code == ErrorCode::aborted);
  CHECK_THAT(outcomes[0].what, Contains("the loss is no number"));
  CHECK(yields.count() - before_abort <= 1);  // it may have been on its way into one more
}

TEST_CASE("a wait on a busy machine gives away the core once, so that its deadline is kept",
          "[runtime][shm]") {
  // 50 yields to programs that compute took up to 3.4 s, of a call's time-out of 300 ms.
  Tally yields;
  std::atomic<Backend*> waiter{nullptr};
  const auto outcomes = as_threads(2, [&](LocalRank& rank) {
    const auto sleeps = [&] { return waiter != nullptr && !waiter.load()->waits_for().empty(); };
    rank.barrier();  // every eighth wait, and the first, is timed: not the next one
    if (rank.rank() == 0) {
      const SlowYields busy{yields};
      waiter = &rank.backend();
      return rank.barrier();
    }
    while (!sleeps()) std::this_thread::yield();
    rank.barrier();
  });
  for (const auto& outcome : outcomes) CHECK_FALSE(outcome.threw);
  CHECK(yields.count() <= 1);
}

TEST_CASE("who waits for a rank that has left is told", "[runtime][shm]") {
  const auto outcomes = as_threads(3, [](LocalRank& rank) {
    rank.barrier();
    if (rank.rank() == 1) return rank.leave();
    rank.barrier();
  });
  CHECK_FALSE(outcomes[1].threw);
  for (const int r : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(r)];
    INFO(outcome.what);
    CHECK(outcome.code == ErrorCode::peer_lost);
    CHECK(outcome.ranks == std::vector<int>{1});
    CHECK_THAT(outcome.what, Contains("rank 1") && Contains("has left the group") &&
                                 Contains("last completed barrier"));
  }
}

TEST_CASE("ranks may leave while others still take what they left behind", "[runtime][shm]") {
  for (int round = 0; round < 50; ++round)
    REQUIRE_NOTHROW(on_threads(4, [](LocalRank& rank) {
      verify_all_gather(rank, {.count = 100'000});
      int token = rank.rank();
      if (rank.rank() == 0) return rank.send(&token, 1, DType::i32, 3);
      if (rank.rank() == 3) rank.recv(&token, 1, DType::i32, 0);
    }));
}

TEST_CASE("the end of a rank reported from outside is described as reported", "[runtime][shm]") {
  const auto outcomes = as_threads(2, [](LocalRank& rank) {
    if (rank.rank() == 1) rank.backend().lost(0, "killed by SIGKILL");
    rank.barrier();
  });
  CHECK(outcomes[1].code == ErrorCode::peer_lost);
  CHECK(outcomes[1].ranks == std::vector<int>{0});
  CHECK_THAT(outcomes[1].what,
             Contains("rank 0 (host here") && Contains(") was lost: killed by SIGKILL; it "));
}

TEST_CASE("whom a rank waits for can be asked from another thread", "[runtime][shm]") {
  std::atomic<bool> may_come{false};
  on_threads(3, [&](LocalRank& rank) {
    if (rank.rank() == 0) {
      std::thread asker{[&] {
        while (rank.backend().waits_for() != std::vector<int>{2}) std::this_thread::yield();
        may_come = true;
      }};
      rank.barrier();
      asker.join();
      return;
    }
    if (rank.rank() == 2)
      while (!may_come) std::this_thread::yield();
    rank.barrier();
  });
  CHECK(may_come);
}
