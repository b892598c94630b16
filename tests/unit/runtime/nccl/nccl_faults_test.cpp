// What goes wrong, and what every rank is told. How soon isn't measured, as a busy machine takes
// its time: a limit that is to end something is short, and the message says it; where something
// else is to end it first, the limit is 20 s or more, and the error isn't timed_out.

#include "runtime/nccl/nccl_backend.hpp"
#include "tests/support/counted_sleeps.hpp"
#include "tests/support/tally.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <barrier>
#include <future>

#include "fakes.hpp"

using namespace acc::runtime;
using namespace acc::testing;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// Calls until something fails; the calls of all ranks are the same.
void reduce_for_ever(Backend& backend, const OnDevice& data, Millis limit,
                     std::uint64_t first = 1) {
  for (std::uint64_t i = first;; ++i) {
    auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, i);
    call.limit = limit;
    backend.begin(call)->wait(std::nullopt);
  }
}

OnDevice one() {
  const std::int32_t value = 0;
  return {&value, sizeof value};
}

NcclOptions with_init(Millis limit) {
  NcclOptions options;
  options.init_timeout = limit;
  return options;
}

}  // namespace

SCENARIO("a rank that never comes: initialisation ends at its limit and names it",
         "[runtime][nccl]") {
  const Fakes fakes;
  const auto outcomes = on_ranks(3, with_init(500ms), [](int, Backend&) {}, {1});
  for (const std::size_t rank : {0, 2}) {
    const auto error = outcomes[rank].failure();
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(error.ranks() == std::vector<int>{1});
    CHECK_THAT(error.what(), Contains("rank 1 of 3 has not joined NCCL after 500 ms; joined: 0 "
                                      "(host here), 2 (host here)"));
  }
  // One that came later learns it from the first one's limit, and has waited for less.
  CHECK(std::max(outcomes[0].took, outcomes[2].took) >= 450ms);
}

SCENARIO("NCCL's own initialisation never ends: an error at its limit, and the abort",
         "[runtime][nccl]") {
  const Fakes fakes{"init=never@1"};
  const auto outcomes = on_ranks(3, with_init(500ms), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK_THAT(error.what(), Contains("NCCL has not connected all ranks within 500 ms"));
  }
}

SCENARIO("NCCL's initialisation fails on one rank: the others don't wait for the limit",
         "[runtime][nccl]") {
  const Fakes fakes{"init=fail@2"};
  const auto outcomes = on_ranks(3, with_init(30s), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::nccl);
    CHECK_THAT(error.what(), Contains("rank 2 of 3: ncclCommInitRankConfig: internal error (3)"));
  }
}

SCENARIO("rank 0 can't make an id: all are told why", "[runtime][nccl]") {
  const Fakes fakes{"id=fail"};
  const auto outcomes = on_ranks(3, with_init(30s), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::nccl);
    CHECK_THAT(error.what(),
               Contains("ncclGetUniqueId: unhandled system error (2): fake: no id today"));
  }
}

SCENARIO("two ranks on one device: refused, both named", "[runtime][nccl]") {
  const Fakes fakes{"", "devices=1"};
  const auto outcomes = on_ranks(2, with_init(30s), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.ranks() == std::vector<int>{0, 1});
    CHECK_THAT(error.what(), Contains("ranks 0 and 1 use the same device 0000:01:00.0"));
  }
}

SCENARIO("more ranks than devices: the rank that has none says so", "[runtime][nccl]") {
  const Fakes fakes{"", "devices=2"};
  const auto outcomes = on_ranks(3, with_init(30s), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    CHECK_THAT(outcome.failure().what(),
               Contains("rank 2") && Contains("local rank 2 has no device: 2 are visible"));
  }
}

SCENARIO("no driver: one line on every rank", "[runtime][nccl]") {
  const Fakes fakes{"", "no_driver"};
  const auto store = make_memory_store();
  try {
    (void)make_nccl_backend(store, facts_of(0, 2, "job"), with_init(30s));
    FAIL("it was made");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Contains("rank 0") && Contains("no driver on this machine"));
    CHECK(std::string{error.what()}.find('\n') == std::string::npos);
  }
  try {
    (void)make_nccl_backend(store, facts_of(1, 2, "job"), with_init(30s));
    FAIL("it was made");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Contains("rank 0") && Contains("no driver on this machine"));
  }
}

SCENARIO("a rank that never calls: all are told who and where", "[runtime][nccl]") {
  const Fakes fakes;
  Tally failed;
  const auto outcomes = on_ranks(3, {}, [&](int rank, Backend& backend) {
    const auto data = one();
    for (std::uint64_t i = 1; i <= 4; ++i) {
      auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, i);
      backend.begin(call)->wait(std::nullopt);
    }
    if (rank == 1) failed.await(2);
    const TallyAtEnd at_end{failed};
    reduce_for_ever(backend, data, 500ms, 5);  // rank 1 is told as well, when it calls at last
  });
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(error.ranks() == std::vector<int>{1});
    CHECK(error.operation() == "all_reduce");
    CHECK(error.sequence() == 5);
    CHECK_THAT(
        error.what(),
        Contains("all_reduce i32 x1 sum #5 did not end within 500 ms; rank 1 (host here, pid "
                 "1001) has not called it: its last call is all_reduce i32 x1 sum #4, done; "
                 "waiting: ranks 0,2"));
  }
}

SCENARIO("the ranks call different things: the timeout says which", "[runtime][nccl]") {
  const Fakes fakes;
  const auto outcomes = on_ranks(3, {}, [&](int rank, Backend& backend) {
    const std::vector<float> values(1000, 1.0F);
    const OnDevice data{values.data(), 4000};
    const auto run = [&](Operation operation, std::size_t count, std::uint64_t sequence) {
      auto call = call_of(operation, data.data(), data.data(), count, DType::f32, sequence);
      call.limit = 500ms;
      if (operation == Operation::broadcast) call.what.root = 0;
      backend.begin(call)->wait(std::nullopt);
    };
    run(Operation::all_reduce, 1000, 1);
    run(Operation::all_reduce, rank == 2 ? 900 : 1000, 2);
  });
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::mismatch);
    CHECK(error.ranks() == std::vector<int>{2});
    CHECK_THAT(error.what(), Contains("rank 2: all_reduce f32 x900 sum #2, ranks 0,1: x1000"));
  }
}

SCENARIO("an operation that never completes though all have called it", "[runtime][nccl]") {
  const Fakes fakes{"never=3@1"};
  const auto outcomes = on_ranks(2, {}, [&](int, Backend& backend) {
    const auto data = one();
    reduce_for_ever(backend, data, 400ms);
  });
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(error.sequence() == 3);
    CHECK_THAT(error.what(), Contains("all ranks have called it, so the devices or the network"));
  }
}

SCENARIO("an error that NCCL finds by itself breaks the group on every rank", "[runtime][nccl]") {
  const Fakes fakes{"error=3@1"};
  const auto outcomes = on_ranks(3, {}, [&](int, Backend& backend) {
    const auto data = one();
    for (std::uint64_t i = 1; i <= 3; ++i) {
      backend.begin(call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, i))
          ->wait(std::nullopt);
    }
    // Nothing waits for these: the error is detected all the same, and thrown by the next call.
    const auto until = Clock::now() + 45s;
    while (Clock::now() < until)
      backend.run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8, 4));
  });
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::nccl);
    CHECK_THAT(error.what(),
               Contains("rank 1 of 3") &&
                   Contains("remote process exited or there was a network error (6)"));
  }
}

SCENARIO("abort() wakes the local waiter and those of the other ranks", "[runtime][nccl]") {
  const Fakes fakes;
  const int who = GENERATE(0, 2);
  CAPTURE(who);
  Tally calling;
  const auto outcomes = on_ranks(3, {}, [&](int rank, Backend& backend) {
    const auto abort = [&] {
      calling.await(2);
      backend.abort(Error{ErrorCode::aborted, "asked to end"});
      backend.abort(Error{ErrorCode::aborted, "asked again"});
    };
    if (rank == 2) {  // without it no call ends
      if (who == 2) abort();
      return calling.await(4);
    }
    // From another thread, as a supervisor's signal handling would.
    const auto helper = std::async(std::launch::async, [&] {
      if (who == rank) abort();
    });
    const TallyAtEnd at_end{calling};
    const auto data = one();
    const auto handle =
        backend.begin(call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32));
    calling.add();
    handle->wait(std::nullopt);
  });
  CHECK(outcomes[2].succeeded());
  for (const std::size_t rank : {0, 1}) {
    const auto error = outcomes[rank].failure();
    CHECK(error.code() == ErrorCode::aborted);
    CHECK_THAT(error.what(), Contains("asked to end"));
  }
}

SCENARIO("a waiter sleeps 10 ms at most, and not again when abort() has returned",
         "[runtime][nccl]") {
  const Fakes fakes;
  constexpr int kAsLongAsTheyGet = 40;  // from then on
  Tally sleeps, ended;
  int before_abort = 0;
  std::chrono::nanoseconds longest{0};
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    if (rank == 1) return ended.await(1);
    const TallyAtEnd at_end{ended};
    const auto data = one();
    const auto handle =
        backend.begin(call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32));
    auto helper = std::async(std::launch::async, [&] {
      sleeps.await(kAsLongAsTheyGet);
      backend.abort(Error{ErrorCode::aborted, "now"});
      before_abort = sleeps.count();
    });
    std::optional<Error> error;
    {
      const CountedSleeps counted{sleeps};
      try {
        handle->wait(std::nullopt);
      } catch (const Error& caught) {
        error = caught;
      }
      longest = counted.longest();
    }
    helper.get();
    if (handle->error() == nullptr) throw Error{ErrorCode::system, "the handle knows no error"};
    if (error) throw Error{*error};
  });
  CHECK(outcomes[0].failure().code() == ErrorCode::aborted);
  CHECK(outcomes[1].succeeded());
  CHECK(longest <= 10ms);
  CHECK(sleeps.count() - before_abort <= 1);  // it may have been on its way into one more
}

SCENARIO("a lost rank is told with its name, its pid and the call", "[runtime][nccl]") {
  const Fakes fakes;
  Tally ended;
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    if (rank == 1) return ended.await(1);
    const TallyAtEnd at_end{ended};
    const auto data = one();
    auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32);
    const auto handle = backend.begin(call);
    backend.lost(1, "killed by SIGKILL (9)");
    handle->wait(std::nullopt);
  });
  const auto error = outcomes[0].failure();
  CHECK(error.code() == ErrorCode::peer_lost);
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK(error.operation() == "all_reduce");
  CHECK_THAT(error.what(),
             Contains("lost rank 1 (host here, pid 1001) during all_reduce i32 x1 sum "
                      "#1: killed by SIGKILL (9)"));
}

SCENARIO("what was done before the end stays done, what wasn't does not look well",
         "[runtime][nccl]") {
  const Fakes fakes;
  Tally ended;
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    const auto data = one();
    const auto reduce = [&](std::uint64_t i) {
      return backend.begin(
          call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, i));
    };
    const auto first = reduce(1);
    first->wait(std::nullopt);
    if (rank == 1) return ended.await(1);
    const TallyAtEnd at_end{ended};
    const auto second = reduce(2);
    backend.abort(Error{ErrorCode::aborted, "now"});
    // The abort lets the device run through what hung.
    acc::cuda::synchronize(nullptr);
    first->wait(std::nullopt);
    if (first->error() != nullptr) throw Error{ErrorCode::system, "the first looks bad"};
    if (!second->done() || second->error() == nullptr) {
      throw Error{ErrorCode::system, "the second looks well"};
    }
    second->wait(std::nullopt);
  });
  CHECK(outcomes[0].failure().code() == ErrorCode::aborted);
  CHECK(outcomes[1].succeeded());
}

SCENARIO("two groups on one device: when one breaks, so does the other", "[runtime][nccl]") {
  const Fakes fakes;
  const auto second = make_memory_store();
  std::barrier have_both{2};  // the ranks share a process, and with it what has broken
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& first) {
    const auto other = make_nccl_backend(second, facts_of(rank, 2, "other"), {});
    const auto data = one();
    auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32);
    const auto handle = rank == 0 ? other->begin(call) : nullptr;
    have_both.arrive_and_wait();
    first.lost(1 - rank, "gone");
    try {
      if (handle) handle->wait(std::nullopt);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::aborted) throw;
      if (std::string{error.what()}.find("another group on the same device broke") ==
          std::string::npos)
        throw;
      return;
    }
    if (rank == 0) throw Error{ErrorCode::system, "the other group went on"};
  });
  for (const auto& outcome : outcomes) {
    if (!outcome.succeeded()) FAIL(outcome.failure().what());
  }
}

SCENARIO("peers that don't end their part: the end of a group has a limit", "[runtime][nccl]") {
  const Fakes fakes{"finalize=hang@0"};
  NcclOptions options;
  options.close_limit = 300ms;
  const auto store = make_memory_store();
  std::thread other{[&] {
    acc::cuda::set_device(1);
    const auto backend = make_nccl_backend(store, facts_of(1, 2, "job"), options);
  }};
  acc::cuda::set_device(0);
  auto backend = make_nccl_backend(store, facts_of(0, 2, "job"), options);
  const auto began = Clock::now();
  backend.reset();
  const auto took = Clock::now() - began;
  other.join();
  CHECK(took >= 300ms);
}

SCENARIO("a group that is destroyed waits for the calls that were begun", "[runtime][nccl]") {
  const Fakes fakes;
  std::vector<std::int32_t> results(2);
  // They outlive the backends, which the harness destroys after the body.
  std::vector<std::unique_ptr<OnDevice>> buffers(2);
  Tally at_the_end;
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    if (rank == 1) at_the_end.await(1);
    const TallyAtEnd over{at_the_end};  // rank 0's backend is destroyed next
    const std::int32_t one_value = 1;
    auto& data = buffers[static_cast<std::size_t>(rank)];
    data = std::make_unique<OnDevice>(&one_value, sizeof one_value);
    backend.run(call_of(Operation::all_reduce, data->data(), data->data(), 1, DType::i32));
    acc::cuda::copy_async(&results[static_cast<std::size_t>(rank)], data->data(), 4, nullptr);
  });
  for (const auto& outcome : outcomes) CHECK(outcome.succeeded());
  acc::cuda::set_device(0);
  acc::cuda::synchronize();
  acc::cuda::set_device(1);
  acc::cuda::synchronize();
  CHECK(results == std::vector<std::int32_t>{2, 2});
}
