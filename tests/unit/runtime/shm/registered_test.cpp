#include "tests/unit/runtime/shm/verification.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;
using namespace acc::runtime::testing;

namespace {

constexpr std::size_t kCount = 20'011;  // of f32: more than what goes along with the arrival

void fill(std::byte* at, const Bytes& with) { std::memcpy(at, with.data(), with.size()); }
void expect_bytes(const std::byte* at, const Bytes& wanted, const char* what) {
  if (std::memcmp(at, wanted.data(), wanted.size()) != 0) throw std::runtime_error{what};
}

}  // namespace

TEST_CASE("registered memory gives the same results as any other", "[runtime][shm]") {
  const int ranks = GENERATE(1, 2, 3, 5);
  const auto type = GENERATE(DType::f32, DType::bf16, DType::i64);
  CAPTURE(ranks, type);
  const auto body = [&](LocalRank& rank) {
    const auto item = size_of(type);
    const auto n = static_cast<std::size_t>(rank.size());
    const auto own = static_cast<std::size_t>(rank.rank());
    const auto held = rank.allocate(n * kCount * item + 64);
    const auto other = rank.allocate(n * kCount * item);
    auto* const a = static_cast<std::byte*>(held.data()) + 24;
    auto* const b = static_cast<std::byte*>(other.data());
    for (const auto op : kAllOps) {
      const auto sums = reductions(type, op, 0, kCount, rank.size(), 3);
      fill(a, inputs(type, op, 0, kCount, rank.rank(), rank.size(), 3));
      rank.all_reduce(a, kCount, type, op);
      expect_bytes(a, sums, "all_reduce in place");
      fill(a, inputs(type, op, 0, kCount, rank.rank(), rank.size(), 3));
      rank.run(Operation::all_reduce, a, b, kCount, type, op);
      expect_bytes(b, sums, "all_reduce from one region to another");
      fill(a, inputs(type, op, 0, n * kCount, rank.rank(), rank.size(), 4));
      rank.run(Operation::reduce_scatter, a, b, kCount, type, op);
      expect_bytes(b, reductions(type, op, own * kCount, kCount, rank.size(), 4), "reduce_scatter");
    }
    const Case c{.type = type, .count = kCount, .round = 5};
    fill(a + own * kCount * item, inputs(type, {}, 0, kCount, rank.rank(), rank.size(), 5));
    rank.run(Operation::all_gather, a + own * kCount * item, a, kCount, type);
    expect_bytes(a, inputs_of_all(c, rank.size()), "all_gather in place");
    fill(b, inputs(type, {}, 0, kCount, rank.rank(), rank.size(), 6));
    const int root = rank.size() - 1;
    rank.run(Operation::broadcast, b, b, kCount, type, {}, root);
    expect_bytes(b, inputs(type, {}, 0, kCount, root, rank.size(), 6), "broadcast");
  };
  REQUIRE_NOTHROW(on_threads(ranks, body));
  for (const auto& outcome : as_processes(ranks, body)) {
    INFO(outcome.what);
    CHECK_FALSE(outcome.threw);
  }
}

TEST_CASE("ranks need not lay their buffers at the same place, nor all into registered memory",
          "[runtime][shm]") {
  REQUIRE_NOTHROW(on_threads(3, [](LocalRank& rank) {
    const auto held = rank.allocate(kCount * 4 + 4096);
    std::vector<std::byte> own(kCount * 4);
    const auto offset = static_cast<std::size_t>(rank.rank()) * 128;
    for (int outside = -1; outside < 3; ++outside) {
      auto* const at =
          outside == rank.rank() ? own.data() : static_cast<std::byte*>(held.data()) + offset;
      fill(at, inputs(DType::f32, {}, 0, kCount, rank.rank(), rank.size(), 7));
      rank.all_reduce(at, kCount, DType::f32);
      expect_bytes(at, reductions(DType::f32, {}, 0, kCount, 3, 7), "all_reduce");
      const int root = outside < 0 ? 0 : outside;
      fill(at, inputs(DType::f32, {}, 0, kCount, rank.rank(), rank.size(), 8));
      rank.run(Operation::broadcast, at, at, kCount, DType::f32, {}, root);
      expect_bytes(at, inputs(DType::f32, {}, 0, kCount, root, rank.size(), 8), "broadcast");
    }
  }));
}

TEST_CASE("registered memory that one rank has given back is used no more", "[runtime][shm]") {
  REQUIRE_NOTHROW(on_threads(2, [](LocalRank& rank) {
    auto held = rank.allocate(kCount * 4);
    auto next = rank.allocate(kCount * 4);
    if (rank.rank() == 0) held = {};
    std::vector<std::byte> own(kCount * 4);
    auto* const at = rank.rank() == 0 ? own.data() : static_cast<std::byte*>(held.data());
    fill(at, inputs(DType::f32, {}, 0, kCount, rank.rank(), rank.size(), 1));
    rank.all_reduce(at, kCount, DType::f32);
    expect_bytes(at, reductions(DType::f32, {}, 0, kCount, 2, 1), "all_reduce");
    auto* const there = static_cast<std::byte*>(next.data());
    fill(there, inputs(DType::f32, {}, 0, kCount, rank.rank(), rank.size(), 2));
    rank.all_reduce(there, kCount, DType::f32);
    expect_bytes(there, reductions(DType::f32, {}, 0, kCount, 2, 2), "all_reduce");
  }));
}

TEST_CASE("registered memory must be asked for with the same size", "[runtime][shm]") {
  for (const auto& outcome : as_threads(2, [](LocalRank& rank) {
         static_cast<void>(rank.allocate(rank.rank() == 0 ? 100 : 200));
       }))
    CHECK(outcome.code == ErrorCode::mismatch);
  CHECK_NOTHROW(on_threads(2, [](LocalRank& rank) {
    if (rank.allocate(0).bytes() != 0) throw std::runtime_error{"nothing was asked for"};
  }));
}

TEST_CASE("between two processes sizes that may be read directly are right, whichever way is taken",
          "[runtime][shm]") {
  for (const auto& outcome : as_processes(2, [](LocalRank& rank) {
         for (std::uint64_t round = 0; round < 30; ++round) {
           Case c{.type = DType::f32, .count = 70'000 + round * 11'003, .round = round};
           c.root = static_cast<int>(round % 2);
           c.in_place = round % 3 == 0;
           verify_broadcast(rank, c);
           verify_all_gather(rank, c);
         }
       })) {
    INFO(outcome.what);
    CHECK_FALSE(outcome.threw);
  }
}
