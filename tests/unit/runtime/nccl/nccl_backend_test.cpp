#include "runtime/nccl/nccl_backend.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "fakes.hpp"

using namespace acc::runtime;
using namespace acc::testing;
using Catch::Matchers::Contains;

namespace {

// Values are small whole numbers that depend on the rank, the place and the turn, so that every
// type holds every result exactly, in any order of summation.
int value_at(int rank, std::size_t place, int turn) {
  return 1 + (rank * 5 + static_cast<int>(place % 7) * 3 + turn) % 4;
}

void store(std::byte* at, DType type, double value) {
  const auto put = [&](auto stored) { std::memcpy(at, &stored, sizeof stored); };
  switch (type) {
    case DType::i8:
      return put(static_cast<std::int8_t>(value));
    case DType::u8:
      return put(static_cast<std::uint8_t>(value));
    case DType::i32:
      return put(static_cast<std::int32_t>(value));
    case DType::u32:
      return put(static_cast<std::uint32_t>(value));
    case DType::i64:
      return put(static_cast<std::int64_t>(value));
    case DType::u64:
      return put(static_cast<std::uint64_t>(value));
    case DType::f16:
      return put(Half{static_cast<float>(value)});
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f64:
      return put(value);
    case DType::bf16:
      return put(BFloat16{static_cast<float>(value)});
  }
}

bool is_whole(DType type) {
  return type != DType::f16 && type != DType::f32 && type != DType::f64 && type != DType::bf16;
}

using Bytes = std::vector<std::byte>;

Bytes filled(DType type, std::size_t count, const std::function<double(std::size_t)>& value) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) store(bytes.data() + i * size_of(type), type, value(i));
  return bytes;
}

/// What rank `rank` puts in: element i of `count`.
Bytes input(DType type, std::size_t count, int rank, int turn) {
  return filled(type, count, [&](std::size_t i) { return value_at(rank, i, turn); });
}

double reduced(int size, std::size_t place, int turn, ReduceOp op, DType type) {
  double total = value_at(0, place, turn);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value_at(rank, place, turn);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        total += next;
        break;
      case ReduceOp::prod:
        total *= next;
        break;
      case ReduceOp::min:
        total = std::min(total, next);
        break;
      case ReduceOp::max:
        total = std::max(total, next);
        break;
    }
  }
  if (op != ReduceOp::avg) return total;
  return is_whole(type) ? std::floor(total / size) : total / size;
}

/// Can the type hold the result exactly? A product of 8 ranks is up to 4^8, an average is a
/// fraction.
bool holds(DType type, ReduceOp op, int size) {
  if (op == ReduceOp::prod && size > 3) {
    return type != DType::i8 && type != DType::u8 && type != DType::f16 && type != DType::bf16;
  }
  return op != ReduceOp::avg || is_whole(type) || size == 1 || size == 2 || size == 4;
}

/// The threads' complaints are collected: Catch2's own checks are for one thread.
class Verdicts {
 public:
  void expect(bool right, const std::string& what) {
    ++checks_;
    if (right) return;
    const std::lock_guard lock{mutex_};
    wrong_.push_back(what);
  }
  void require_all_right() const {
    INFO((wrong_.empty() ? std::string{} : wrong_.front()));
    CHECK(checks_ > 0);
    REQUIRE(wrong_.empty());
  }

 private:
  std::atomic<int> checks_{0};
  std::mutex mutex_;
  std::vector<std::string> wrong_;
};

/// One rank's buffers and sequence numbers, over one backend.
class Runner {
 public:
  Runner(int rank, int size, Backend& backend, Verdicts& verdicts)
      : rank_{rank}, size_{size}, backend_{backend}, verdicts_{verdicts} {}

  void all(DType type, std::size_t count) {
    for (const auto op :
         {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      if (!holds(type, op, size_)) continue;
      all_reduce(type, count, op, false);
      all_reduce(type, count, op, true);
      reduce_scatter(type, count, op);
      for (int root = 0; root < size_; ++root) reduce(type, count, op, root);
    }
    for (int root = 0; root < size_; ++root) {
      broadcast(type, count, root);
      gather(type, count, root);
      scatter(type, count, root);
    }
    all_gather(type, count, false);
    all_gather(type, count, true);
    all_gather_v(type, count);
    all_to_all(type, count);
    ring(type, count);
  }

 private:
  Call call(Operation operation, const void* send, void* recv, std::size_t count, DType type) {
    return call_of(operation, send, recv, count, type, ++sequence_);
  }
  void expect(const OnDevice& buffer, const Bytes& expected, const Call& made) {
    verdicts_.expect(buffer.read() == expected, "rank " + std::to_string(rank_) + " of " +
                                                    std::to_string(size_) + ": " +
                                                    to_string(made.what));
  }
  OnDevice own(DType type, std::size_t count) {
    const auto bytes = input(type, count, rank_, turn());
    return {bytes.data(), bytes.size()};
  }
  [[nodiscard]] int turn() const { return static_cast<int>(sequence_ % 5); }
  /// Where each rank's input of `count` lies one behind the other.
  Bytes inputs_of_all(DType type, std::size_t count) const {
    Bytes all;
    for (int rank = 0; rank < size_; ++rank) {
      const auto one = input(type, count, rank, turn());
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  void all_reduce(DType type, std::size_t count, ReduceOp op, bool in_place) {
    const auto expected =
        filled(type, count, [&](std::size_t i) { return reduced(size_, i, turn(), op, type); });
    const auto send = own(type, count);
    const OnDevice recv{count * size_of(type)};
    const auto& into = in_place ? send : recv;
    auto made = call(Operation::all_reduce, send.data(), into.data(), count, type);
    made.what.reduce = op;
    backend_.run(made);
    expect(into, expected, made);
  }
  void reduce(DType type, std::size_t count, ReduceOp op, int root) {
    const auto expected =
        filled(type, count, [&](std::size_t i) { return reduced(size_, i, turn(), op, type); });
    const auto send = own(type, count);
    const OnDevice recv{count * size_of(type)};
    const auto before = recv.read();
    const bool mine = rank_ == root;
    auto made = call(Operation::reduce, send.data(), mine ? recv.data() : nullptr, count, type);
    made.what.reduce = op;
    made.what.root = root;
    backend_.run(made);
    expect(recv, mine ? expected : before, made);
  }
  void reduce_scatter(DType type, std::size_t count, ReduceOp op) {
    const auto whole = count * static_cast<std::size_t>(size_);
    const auto offset = count * static_cast<std::size_t>(rank_);
    const auto expected = filled(
        type, count, [&](std::size_t i) { return reduced(size_, offset + i, turn(), op, type); });
    const auto send = own(type, whole);
    const OnDevice recv{count * size_of(type)};
    auto made = call(Operation::reduce_scatter, send.data(), recv.data(), count, type);
    made.what.reduce = op;
    backend_.run(made);
    expect(recv, expected, made);
  }
  void broadcast(DType type, std::size_t count, int root) {
    const auto expected = input(type, count, root, turn());
    const auto data = own(type, count);
    auto made = call(Operation::broadcast, data.data(), data.data(), count, type);
    made.what.root = root;
    backend_.run(made);
    expect(data, expected, made);
  }
  void all_gather(DType type, std::size_t count, bool in_place) {
    const auto expected = inputs_of_all(type, count);
    const auto send = own(type, count);
    const OnDevice recv{expected.size()};
    auto* const place = static_cast<std::byte*>(recv.data()) +
                        count * size_of(type) * static_cast<std::size_t>(rank_);
    if (in_place) acc::cuda::copy(place, send.data(), count * size_of(type));
    auto made =
        call(Operation::all_gather, in_place ? place : send.data(), recv.data(), count, type);
    backend_.run(made);
    expect(recv, expected, made);
  }
  void all_gather_v(DType type, std::size_t count) {
    std::vector<std::size_t> counts;
    Bytes expected;
    for (int rank = 0; rank < size_; ++rank) {
      counts.push_back(rank == 1 ? 0 : count + static_cast<std::size_t>(rank));
      const auto one = input(type, counts.back(), rank, turn());
      expected.insert(expected.end(), one.begin(), one.end());
    }
    const auto send = own(type, counts[static_cast<std::size_t>(rank_)]);
    const OnDevice recv{expected.size()};
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    auto made = call(Operation::all_gather, send.data(), recv.data(), total, type);
    made.counts = counts;
    backend_.run(made);
    expect(recv, expected, made);
  }
  void gather(DType type, std::size_t count, int root) {
    const auto expected = inputs_of_all(type, count);
    const auto send = own(type, count);
    const OnDevice recv{expected.size()};
    const auto before = recv.read();
    const bool mine = rank_ == root;
    auto made = call(Operation::gather, send.data(), mine ? recv.data() : nullptr, count, type);
    made.what.root = root;
    backend_.run(made);
    expect(recv, mine ? expected : before, made);
  }
  void scatter(DType type, std::size_t count, int root) {
    const auto whole = count * static_cast<std::size_t>(size_);
    const auto offset = count * static_cast<std::size_t>(rank_);
    const auto expected =
        filled(type, count, [&](std::size_t i) { return value_at(root, offset + i, turn()); });
    const auto send = own(type, whole);
    const OnDevice recv{count * size_of(type)};
    auto made =
        call(Operation::scatter, rank_ == root ? send.data() : nullptr, recv.data(), count, type);
    made.what.root = root;
    backend_.run(made);
    expect(recv, expected, made);
  }
  void all_to_all(DType type, std::size_t count) {
    const auto whole = count * static_cast<std::size_t>(size_);
    const auto expected = filled(type, whole, [&](std::size_t i) {
      const int from = count == 0 ? 0 : static_cast<int>(i / count);
      const auto place = static_cast<std::size_t>(rank_) * count + (count == 0 ? 0 : i % count);
      return value_at(from, place, turn());
    });
    const auto send = own(type, whole);
    const OnDevice recv{whole * size_of(type)};
    auto made = call(Operation::all_to_all, send.data(), recv.data(), count, type);
    backend_.run(made);
    expect(recv, expected, made);
  }
  /// Each rank sends to the next one, as one launch; else all would wait for their receivers.
  void ring(DType type, std::size_t count) {
    if (size_ == 1) return;
    const int to = (rank_ + 1) % size_;
    const int from = (rank_ + size_ - 1) % size_;
    const auto expected = input(type, count, from, turn());
    const auto send = own(type, count);
    const OnDevice recv{count * size_of(type)};
    auto out = call(Operation::send, send.data(), nullptr, count, type);
    out.peer = to;
    auto in = out;
    in.what.operation = Operation::recv;
    in.send = nullptr;
    in.recv = recv.data();
    in.peer = from;
    const std::array both{out, in};
    run_as_one(backend_, both);
    expect(recv, expected, in);
  }

  int rank_;
  int size_;
  Backend& backend_;
  Verdicts& verdicts_;
  std::uint64_t sequence_ = 0;
};

void require_all_well(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) {
    if (!outcome.well()) FAIL(outcome.failure().what());
  }
}

}  // namespace

TEST_CASE("every operation gives exactly what it should, for every type and reduction",
          "[runtime][nccl]") {
  const Fakes fakes;
  const int size = GENERATE(1, 2, 3, 5, 8);
  Verdicts verdicts;
  const auto outcomes = on_ranks(size, {}, [&](int rank, Backend& backend) {
    Runner runner{rank, size, backend, verdicts};
    for (std::size_t type = 0; type < kDTypes; ++type) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{37}}) {
        runner.all(static_cast<DType>(type), count);
      }
    }
    runner.all(DType::f32, 10'007);
  });
  require_all_well(outcomes);
  verdicts.require_all_right();
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
  verdicts.require_all_right();
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
  verdicts.require_all_right();
}

TEST_CASE("no rank leaves a barrier before all have come", "[runtime][nccl]") {
  const Fakes fakes;
  Verdicts verdicts;
  std::atomic<int> arrived{0};
  const auto outcomes = on_ranks(4, {}, [&](int rank, Backend& backend) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      if (static_cast<std::uint64_t>(rank) == i % 4) std::this_thread::sleep_for(Millis{2});
      ++arrived;
      backend.run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8, i));
      verdicts.expect(arrived >= static_cast<int>(4 * i),
                      "all have come to barrier " + std::to_string(i));
    }
  });
  require_all_well(outcomes);
  verdicts.require_all_right();
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
  verdicts.require_all_right();
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
  verdicts.require_all_right();
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
  verdicts.require_all_right();
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
  verdicts.require_all_right();
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
  verdicts.require_all_right();
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
