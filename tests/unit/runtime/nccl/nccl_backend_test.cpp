#include "runtime/nccl/nccl_backend.hpp"

#include "tests/support/exact_collectives.hpp"
#include "tests/support/tally.hpp"
#include "tests/support/thread_groups.hpp"
#include "tests/support/uneven_calls.hpp"

#include <catch2/catch.hpp>

#include <atomic>

#include "fakes.hpp"

using namespace acc::runtime;
using namespace acc::testing;
using Catch::Matchers::Contains;
using uneven::element;
using uneven::elements;
using uneven::expect;

namespace {

void require_all_right(const Verdicts& verdicts) {
  const auto wrong = verdicts.wrong();
  INFO((wrong.empty() ? std::string{} : wrong.front()));
  CHECK(verdicts.checks() > 0);
  REQUIRE(wrong.empty());
}

void require_all_well(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) {
    if (!outcome.succeeded()) FAIL(outcome.failure().what());
  }
}

}  // namespace

TEST_CASE("every operation gives exactly what it should, for every type and reduction",
          "[runtime][nccl]") {
  const Fakes fakes;
  const int size = GENERATE(1, 2, 3, 5, 8);
  Verdicts verdicts;
  const auto outcomes = on_ranks(size, {}, [&](int rank, Backend& backend) {
    const auto run = [&](const Call& call) { backend.run(call); };
    const auto as_one = [&](const std::vector<Call>& calls) { (void)backend.begin_as_one(calls); };
    ExactCollectives exact{rank, size, run, as_one, verdicts};
    ExactCollectives shifted{rank, size, run, as_one, verdicts, 1};
    for (std::size_t type = 0; type < kDTypes; ++type) {
      exact.all(static_cast<DType>(type), 0);
      exact.all(static_cast<DType>(type), 1);
      shifted.all(static_cast<DType>(type), 37);
    }
    exact.all(DType::f32, 10'007);
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("results can be had in order with the caller's own stream", "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    const std::vector<float> zeros(1000, 0.0F);
    const OnDevice data{zeros.data(), zeros.size() * sizeof(float)};
    // What comes before on the stream is done before, what comes after sees the result.
    std::vector<float> ones(1000, static_cast<float>(rank + 1));
    std::vector<float> read(1000);
    acc::cuda::copy_async(data.data(), ones.data(), 4000, nullptr);
    for (std::uint64_t i = 1; i <= 10; ++i) {
      backend.run(call_of(Operation::all_reduce, data.data(), data.data(), 1000, DType::f32, i));
    }
    acc::cuda::copy_async(read.data(), data.data(), 4000, nullptr);
    acc::cuda::synchronize(nullptr);
    verdicts.expect(read == std::vector<float>(1000, 3.0F * 512), "the value after ten reductions");
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("a handle tells when a call is done", "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  std::atomic<bool> rank_1_may{false};
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    const std::vector<std::int32_t> own{rank + 1, 10 * (rank + 1)};
    const OnDevice data{own.data(), 8};
    if (rank == 1) {
      while (!rank_1_may) std::this_thread::yield();
    }
    const auto handle =
        backend.begin(call_of(Operation::all_reduce, data.data(), data.data(), 2, DType::i32));
    if (rank == 0) {
      verdicts.expect(!handle->done(), "not done while rank 1 has not called");
      try {
        handle->wait(Millis{50});
        verdicts.expect(false, "a wait of 50 ms ended");
      } catch (const Error& error) {
        verdicts.expect(error.code() == ErrorCode::timed_out, error.what());
        verdicts.expect(error.operation() == "all_reduce", "its operation");
      }
      verdicts.expect(handle->error() == nullptr, "the call goes on");
      rank_1_may = true;
    }
    handle->wait(std::nullopt);
    verdicts.expect(handle->done(), "done after a wait");
    verdicts.expect(handle->error() == nullptr, "and well");
    verdicts.expect(data.read_as<std::int32_t>() == std::vector<std::int32_t>{3, 30}, "the sum");
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("no rank leaves a barrier before all have come", "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  Tally arrived;
  const auto outcomes = on_ranks(4, {}, [&](int rank, Backend& backend) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      const auto before_the_last = static_cast<int>(4 * i) - 1;
      if (static_cast<std::uint64_t>(rank) == i % 4) arrived.await(before_the_last);
      arrived.add();
      backend.run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8, i));
      verdicts.expect(arrived.count() > before_the_last,
                      "all have come to barrier " + std::to_string(i));
    }
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("buffers in host memory work too, through the device", "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  const auto outcomes = on_ranks(3, {}, [&](int rank, Backend& backend) {
    std::vector<std::int64_t> own{rank, rank + 10, rank + 20};
    std::vector<std::int64_t> all(9);
    backend.run(call_of(Operation::all_gather, own.data(), all.data(), 3, DType::i64, 1));
    verdicts.expect(all == std::vector<std::int64_t>{0, 10, 20, 1, 11, 21, 2, 12, 22},
                    "all_gather");
    backend.run(call_of(Operation::all_reduce, own.data(), own.data(), 3, DType::i64, 2));
    verdicts.expect(own == std::vector<std::int64_t>{3, 33, 63}, "all_reduce in place");
    std::string word = rank == 2 ? "from the root" : std::string(13, '\0');
    auto broadcast = call_of(Operation::broadcast, word.data(), word.data(), 13, DType::u8, 3);
    broadcast.what.root = 2;
    backend.run(broadcast);
    verdicts.expect(word == "from the root", "broadcast");
    auto gather =
        call_of(Operation::gather, own.data(), rank == 1 ? all.data() : nullptr, 3, DType::i64, 4);
    gather.what.root = 1;
    backend.run(gather);
    if (rank == 1) {
      verdicts.expect(all == std::vector<std::int64_t>{3, 33, 63, 3, 33, 63, 3, 33, 63}, "gather");
    }
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("shared buffers are registered, used, and may outlive the group", "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  std::vector<SharedBuffer> kept(2);
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    auto allocate = call_of(Operation::allocate, nullptr, nullptr, 4096, DType::u8, 1);
    auto buffer = backend.allocate(4000, allocate);
    verdicts.expect(buffer.bytes() == 4000, "the size that was asked for");
    verdicts.expect(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0, "whole pages");
    const std::vector<float> own(1000, static_cast<float>(rank + 1));
    acc::cuda::copy(buffer.data(), own.data(), 4000);
    backend.run(call_of(Operation::all_reduce, buffer.data(), buffer.data(), 1000, DType::f32, 2));
    std::vector<float> read(1000);
    acc::cuda::copy(read.data(), buffer.data(), 4000);
    verdicts.expect(read == std::vector<float>(1000, 3.0F), "the sum");
    (void)backend.allocate(0, allocate);
    kept[static_cast<std::size_t>(rank)] = std::move(buffer);
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("more calls under way than are remembered: the host waits for the device",
          "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  std::atomic<bool> go{false};
  const auto outcomes = on_ranks(2, {}, [&](int rank, Backend& backend) {
    const std::int64_t one = 1;
    const OnDevice data{&one, 8};
    const OnDevice zero{&one, 8};
    acc::cuda::fill_async(zero.data(), 0, 8, nullptr);
    if (rank == 1) {
      while (!go) std::this_thread::yield();
    }
    // Of zeros, as a sum of sums would overflow: what counts is that all are done, in order.
    for (std::uint64_t i = 1; i <= 2500; ++i) {
      if (rank == 0 && i == 1000) go = true;
      const auto& which = i == 2500 ? data : zero;
      backend.run(call_of(Operation::all_reduce, which.data(), which.data(), 1, DType::i64, i));
    }
    verdicts.expect(data.read_as<std::int64_t>() == std::vector<std::int64_t>{2}, "the last one");
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("a call that NCCL refuses has no effect and breaks nothing", "[runtime][nccl]") {
  const Fakes fakes{"invalid=2"};
  Verdicts verdicts;
  const auto outcomes = on_ranks(2, {}, [&](int, Backend& backend) {
    const std::int32_t one = 1;
    const OnDevice data{&one, 4};
    const auto reduce = [&](std::uint64_t sequence) {
      backend.run(
          call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::i32, sequence));
    };
    reduce(1);
    try {
      reduce(2);
      verdicts.expect(false, "the second call was taken");
    } catch (const Error& error) {
      verdicts.expect(error.code() == ErrorCode::invalid_argument, error.what());
      verdicts.expect(error.operation() == "all_reduce" && error.sequence() == 2, "whose it is");
      verdicts.expect(std::string{error.what()}.find("told to refuse") != std::string::npos,
                      error.what());
    }
    reduce(3);
    verdicts.expect(data.read_as<std::int32_t>() == std::vector<std::int32_t>{4}, "1 -> 2 -> 4");
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("with the check on, a mismatch is told on every rank before any data moves",
          "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  NcclOptions options;
  options.check = true;
  const auto outcomes = on_ranks(3, options, [&](int rank, Backend& backend) {
    std::vector<float> ones(1000, 1.0F);
    const OnDevice data{ones.data(), 4000};
    backend.run(call_of(Operation::all_reduce, data.data(), data.data(), 1000, DType::f32, 1));
    try {
      backend.run(call_of(Operation::all_reduce, data.data(), data.data(), rank == 1 ? 900 : 1000,
                          DType::f32, 2));
      verdicts.expect(false, "the mismatch went unnoticed");
    } catch (const Error& error) {
      verdicts.expect(error.code() == ErrorCode::mismatch, error.what());
      verdicts.expect(error.ranks() == std::vector<int>{1}, "who is unlike the others");
    }
    verdicts.expect(data.read_as<float>() == std::vector<float>(1000, 3.0F), "data as before");
    try {
      backend.run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8, 3));
      verdicts.expect(false, "a broken group went on");
    } catch (const Error& error) {
      verdicts.expect(error.code() == ErrorCode::mismatch, "the first cause");
    }
  });
  require_all_well(outcomes);
  require_all_right(verdicts);
}

TEST_CASE("a group of one needs no store", "[runtime][nccl]") {
  const Fakes fakes;
  const auto backend = make_nccl_backend(nullptr, facts_of(0, 1, ""), {});
  CHECK(backend->name() == "nccl");
  CHECK(backend->asynchronous());
  const float seven = 7;
  const OnDevice data{&seven, 4};
  backend->run(call_of(Operation::all_reduce, data.data(), data.data(), 1, DType::f32));
  backend->run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8, 2));
  CHECK(data.read_as<float>() == std::vector<float>{7});
}

namespace {

GroupOptions over_nccl(std::optional<bool> check = {}) {
  GroupOptions options;
  options.backend = BackendKind::nccl;
  options.timeout = 20 * kSecond;
  options.check = check;
  return options;
}

std::string told_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::string{to_string(e.code())} + ": " + e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("calls with counts of each rank's own, over NCCL", "[runtime][nccl]") {
  const Fakes fakes;
  const int size = GENERATE(1, 2, 3, 5);
  const bool check = GENERATE(false, true);
  auto groups = ProcessGroup::threads(size, over_nccl(check));
  CHECK_NOTHROW(on_all(groups, [](ProcessGroup& group) { uneven::check_calls(group); }));
}

TEST_CASE("messages in device memory go at the same time, those of the host are refused",
          "[runtime][nccl]") {
  const Fakes fakes;
  constexpr std::size_t kCount = 100'000;
  auto groups = ProcessGroup::threads(3, over_nccl());
  CHECK_NOTHROW(on_all(groups, [](ProcessGroup& group) {
    const int right = (group.rank() + 1) % 3, left = (group.rank() + 2) % 3;
    acc::cuda::set_device(group.device().index);
    const auto mine = elements(group.rank(), right, kCount);
    const OnDevice out{mine.data(), kCount * 4}, in{mine.data(), kCount * 4};
    const Device here = group.device();
    const Shape shape{static_cast<std::int64_t>(kCount)};
    group.sendrecv(ConstTensorView{out.data(), DType::i32, shape, here}, right,
                   TensorView{in.data(), DType::i32, shape, here}, left);
    expect(in.read_as<std::int32_t>() == elements(left, group.rank(), kCount), "a ring");
    const auto works = group.batch_async({Message::recv(in.data(), 1, DType::i32, right),
                                          Message::send(out.data(), 1, DType::i32, left)});
    wait_all(works);
    // `right` sends the first element of what it has for its own right neighbour.
    expect(in.read_as<std::int32_t>()[0] == element(right, (right + 1) % 3, 0), "a batch");
    std::vector<float> host(2), into(2);
    expect(told_by([&] {
             group.sendrecv(host, right, into, left);
           }).find("calls that are launched together need device memory") != std::string::npos,
           "host memory is refused");
    expect(!group.broken(), "the group is as before");
    group.barrier();
  }));
}

TEST_CASE("coalesced calls are one launch, and take effect as if they came one by one",
          "[runtime][nccl]") {
  const Fakes fakes;
  const bool check = GENERATE(false, true);
  auto groups = ProcessGroup::threads(2, over_nccl(check));
  CHECK_NOTHROW(on_all(groups, [](ProcessGroup& group) {
    acc::cuda::set_device(group.device().index);
    const std::vector<float> ones(64, static_cast<float>(group.rank() + 1));
    const OnDevice a{ones.data(), 256}, b{ones.data(), 256};
    Work work;
    group.coalesce([&] {
      group.all_reduce(a.data(), a.data(), 64, DType::f32);
      work = group.all_reduce_async(b.data(), b.data(), 64, DType::f32, ReduceOp::max);
      expect(told_by([&] { work.wait(); }).find("within coalesce") != std::string::npos,
             "it can't be waited for before it is launched");
      expect(told_by([&] { group.barrier(); }).starts_with("invalid_argument"), "no barrier");
      expect(told_by([&] { (void)group.all_gather_object("x"); }).starts_with("invalid_argument"),
             "no objects");
      expect(told_by([&] { (void)group.split(0, 0); }).starts_with("invalid_argument"), "no split");
    });
    work.wait();
    expect(a.read_as<float>() == std::vector<float>(64, 3.0F), "the sum");
    expect(b.read_as<float>() == std::vector<float>(64, 2.0F), "the maximum");
    // What throws launches nothing, and the numbers of the calls are as before.
    expect(told_by([&] {
             group.coalesce([&] {
               group.all_reduce(a.data(), a.data(), 64, DType::f32);
               throw Error{ErrorCode::system, "of the caller"};
             });
           }) == "system: of the caller",
           "the caller's own exception");
    group.all_reduce(b.data(), b.data(), 64, DType::f32);
    acc::cuda::synchronize();
    expect(a.read_as<float>()[0] == 3.0F && b.read_as<float>()[0] == 4.0F, "only what came after");
  }));
}

TEST_CASE("with the check on, a coalesced launch that a rank never joins waited for ever",
          "[runtime][nccl]") {
  const Fakes fakes;
  auto options = over_nccl(true);
  options.timeout = kSecond;
  auto groups = ProcessGroup::threads(2, options);
  CHECK_NOTHROW(on_all(groups, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    acc::cuda::set_device(group.device().index);
    const OnDevice data{std::vector<float>(64, 1.0F).data(), 256};
    const auto said = told_by([&] {
      group.coalesce([&] { group.all_reduce(data.data(), data.data(), 64, DType::f32); });
      acc::cuda::synchronize();
    });
    expect(said.starts_with("timed_out") && said.find("rank 1") != std::string::npos, said.c_str());
  }));
}

TEST_CASE(
    "a group over NCCL has sub-groups that keep to the host, as the writers of checkpoints do",
    "[runtime][nccl]") {
  const Fakes fakes;
  auto groups = ProcessGroup::threads(2, over_nccl());
  CHECK_NOTHROW(on_all(groups, [](ProcessGroup& group) {
    auto on_host = group.split(0, group.rank(), "host", {.backend = BackendKind::cpu});
    expect(on_host.backend() == "cpu", "another backend");
    expect(group.split(0, group.rank(), "device").backend() == "nccl", "the same one");
    std::vector<float> one{1.0F};
    on_host.all_reduce(one);
    expect(one[0] == 2.0F, "the sum");
  }));
}
