// What goes wrong, and that every rank is told in time: the limit of what was asked, and a second.

#include "runtime/nccl/nccl_backend.hpp"

#include <catch2/catch.hpp>

#include <atomic>

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

SCENARIO("a rank that never comes: initialisation ends in time and names it", "[runtime][nccl]") {
  const Fakes fakes;
  const auto outcomes = on_ranks(3, with_init(500ms), [](int, Backend&) {}, {1});
  for (const std::size_t rank : {0, 2}) {
    const auto error = outcomes[rank].failure();
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(error.ranks() == std::vector<int>{1});
    CHECK_THAT(error.what(), Contains("rank 1 of 3 has not joined NCCL after 500 ms; joined: 0 "
                                      "(host here), 2 (host here)"));
    CHECK(outcomes[rank].took >= 450ms);
    CHECK(outcomes[rank].took < 500ms + kSecond);
  }
}

SCENARIO("NCCL's own initialisation never ends: an error in time, and the abort",
         "[runtime][nccl]") {
  const Fakes fakes{"init=never@1"};
  const auto outcomes = on_ranks(3, with_init(500ms), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK_THAT(error.what(), Contains("NCCL has not connected all ranks within 500 ms"));
    CHECK(outcome.took < 500ms + kSecond);
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
    CHECK(outcome.took < 1s + kSecond);
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
    CHECK(outcome.took < kSecond);
  }
}

SCENARIO("two ranks on one device: refused at once, both named", "[runtime][nccl]") {
  const Fakes fakes{"", "devices=1"};
  const auto outcomes = on_ranks(2, with_init(30s), [](int, Backend&) {});
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.ranks() == std::vector<int>{0, 1});
    CHECK_THAT(error.what(), Contains("ranks 0 and 1 use the same device 0000:01:00.0"));
    CHECK(outcome.took < kSecond);
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

SCENARIO("no driver: one line on every rank, at once", "[runtime][nccl]") {
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

SCENARIO("a rank that never calls: all are told who and where, in time", "[runtime][nccl]") {
  const Fakes fakes;
  std::atomic<bool> over{false};
  std::atomic<int> failed{0};
  const auto outcomes = on_ranks(3, {}, [&](int rank, Backend& backend) {
    const auto data = one();
    for (std::uint64_t i = 1; i <= 4; ++i) {
      auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, i);
      backend.begin(call)->wait(std::nullopt);
    }
    if (rank == 1) {
      while (!over) std::this_thread::sleep_for(1ms);
      // It is told as well, when it calls at last.
      reduce_for_ever(backend, data, 500ms, 5);
    }
    const auto began = Clock::now();
    try {
      reduce_for_ever(backend, data, 500ms, 5);
    } catch (const Error&) {
      if (Clock::now() - began > 500ms + kSecond) failed = 100;
      if (++failed >= 2) over = true;
      throw;
    }
  });
  CHECK(failed == 2);
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
    CHECK(outcome.took < 1s + kSecond);
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
    CHECK(outcome.took < 1s + kSecond);
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
    // Nobody waits for anything: it is found all the same, and told with the next call.
    const auto deadline = Clock::now() + 5s;
    while (Clock::now() < deadline) {
      auto call = call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8, 4);
      call.limit = 10s;
      backend.run(call);
      std::this_thread::sleep_for(5ms);
    }
  });
  for (const auto& outcome : outcomes) {
    const auto error = outcome.failure();
    CHECK(error.code() == ErrorCode::nccl);
    CHECK_THAT(error.what(),
               Contains("rank 1 of 3") &&
                   Contains("remote process exited or there was a network error (6)"));
    CHECK(outcome.took < 500ms + kSecond);
  }
}

SCENARIO("abort() wakes the local waiter at once and the others within a second",
         "[runtime][nccl]") {
  const Fakes fakes;
  std::atomic<Clock::rep> aborted_at{0};
  const auto outcomes = on_ranks(3, {}, [&](int rank, Backend& backend) {
    const auto data = one();
    if (rank == 2) {
      std::this_thread::sleep_for(100ms);
      return backend.abort(Error{ErrorCode::aborted, "asked to end"});
    }
    if (rank == 0) {
      // From another thread, as a supervisor's signal handling would.
      std::thread helper{[&] {
        std::this_thread::sleep_for(300ms);
        aborted_at = Clock::now().time_since_epoch().count();
        backend.abort(Error{ErrorCode::aborted, "asked to end"});
        backend.abort(Error{ErrorCode::aborted, "asked again"});
      }};
      try {
        reduce_for_ever(backend, data, 20s);
      } catch (...) {
        helper.join();
        throw;
      }
    }
    reduce_for_ever(backend, data, 20s);
  });
  CHECK(outcomes[2].well());
  for (const std::size_t rank : {0, 1}) {
    const auto error = outcomes[rank].failure();
    CHECK(error.code() == ErrorCode::aborted);
    CHECK_THAT(error.what(), Contains("asked to end"));
    CHECK(outcomes[rank].took < 500ms + kSecond);
  }
}

SCENARIO("the waiter that is aborted wakes within 10 ms", "[runtime][nccl]") {
  const Fakes fakes;
  std::vector<double> wakes;
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    if (rank == 1) {
      std::this_thread::sleep_for(400ms);
      return;
    }
    const auto data = one();
    std::atomic<bool> ready{false};
    Clock::time_point at;
    std::thread helper{[&] {
      while (!ready) std::this_thread::yield();
      std::this_thread::sleep_for(150ms);  // the waiter is in its longest sleeps by now
      at = Clock::now();
      backend.abort(Error{ErrorCode::aborted, "now"});
    }};
    const auto handle =
        backend.begin(call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32));
    ready = true;
    try {
      handle->wait(std::nullopt);
    } catch (const Error&) {
      wakes.push_back(std::chrono::duration<double, std::milli>(Clock::now() - at).count());
    }
    helper.join();
    if (handle->error() == nullptr) throw Error{ErrorCode::system, "the handle knows no error"};
  });
  CHECK(outcomes[0].well());
  REQUIRE(wakes.size() == 1);
  CHECK(wakes.front() < 10.0 * ACC_TEST_SLACK);
}

SCENARIO("a lost rank is told with its name, its pid and the call", "[runtime][nccl]") {
  const Fakes fakes;
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    if (rank == 1) return std::this_thread::sleep_for(500ms);
    const auto data = one();
    auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32);
    const auto handle = backend.begin(call);
    const auto began = Clock::now();
    backend.lost(1, "killed by SIGKILL (9)");
    try {
      handle->wait(std::nullopt);
    } catch (const Error&) {
      if (Clock::now() - began > 100ms * ACC_TEST_SLACK) throw Error{ErrorCode::system, "too late"};
      throw;
    }
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
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    const auto data = one();
    const auto reduce = [&](std::uint64_t i) {
      return backend.begin(
          call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, i));
    };
    const auto first = reduce(1);
    first->wait(std::nullopt);
    if (rank == 1) return std::this_thread::sleep_for(300ms);
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
  CHECK(outcomes[1].well());
}

SCENARIO("two groups on one device: when one breaks, so does the other", "[runtime][nccl]") {
  const Fakes fakes;
  const auto second = make_memory_store();
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& first) {
    const auto other = make_nccl_backend(second, facts_of(rank, 2, "other"), {});
    const auto data = one();
    auto call = call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32);
    const auto handle = rank == 0 ? other->begin(call) : nullptr;
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
    if (!outcome.well()) FAIL(outcome.failure().what());
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
  CHECK(took < 300ms + kSecond);
}

SCENARIO("a group that is destroyed waits for the calls that were begun", "[runtime][nccl]") {
  const Fakes fakes;
  std::vector<std::int32_t> results(2);
  // They outlive the backends, which the harness destroys after the body.
  std::vector<std::unique_ptr<OnDevice>> buffers(2);
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    if (rank == 1) std::this_thread::sleep_for(100ms);
    const std::int32_t one_value = 1;
    auto& data = buffers[static_cast<std::size_t>(rank)];
    data = std::make_unique<OnDevice>(&one_value, sizeof one_value);
    backend.run(call_of(Operation::all_reduce, data->data(), data->data(), 1, DType::i32));
    acc::cuda::copy_async(&results[static_cast<std::size_t>(rank)], data->data(), 4, nullptr);
  });
  for (const auto& outcome : outcomes) CHECK(outcome.well());
  acc::cuda::set_device(0);
  acc::cuda::synchronize();
  acc::cuda::set_device(1);
  acc::cuda::synchronize();
  CHECK(results == std::vector<std::int32_t>{2, 2});
}
