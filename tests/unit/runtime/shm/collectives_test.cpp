#include "tests/unit/runtime/shm/verification.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <thread>

using namespace acc::runtime;
using namespace acc::runtime::testing;

namespace {

/// One element, some that divide by nothing, those around the end of what goes along with the
/// arrival, and several chunks and a bit.
std::vector<std::size_t> counts_of(DType type, int ranks) {
  const auto item = size_of(type);
  const auto small = (32u << 10) / item;
  const auto share = small / static_cast<std::size_t>(ranks);
  return {0, 1, 3, 1021, share, share + 1, small, small + 1, (150u << 10) / item + 7};
}

void all_sizes(LocalRank& rank, DType type, ReduceOp op) {
  Case c{.type = type, .op = op};
  for (const auto count : counts_of(type, rank.size())) {
    c.count = count;
    ++c.round;
    c.off = c.round % 3 == 0 ? 0 : c.round;  // not even by whole elements
    c.root = static_cast<int>(c.round) % rank.size();
    verify_all(rank, c);
  }
}

/// All types and reductions; those of a size differ only in what is reduced.
void all_types(LocalRank& rank) {
  for (const auto type : kAllTypes) {
    for (const auto op : kAllOps) {
      for (const std::size_t bytes : {std::size_t{10}, std::size_t{50'000}}) {
        const auto count = bytes / size_of(type) + 3;
        const Case c{.type = type, .op = op, .count = count, .round = count, .off = 1};
        verify_all_reduce(rank, c);
        verify_reduce(rank, c);
        verify_reduce_scatter(rank, c);
      }
    }
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr DType kSizes[] = {DType::f32};
#else
constexpr DType kSizes[] = {DType::u8, DType::f16, DType::f32, DType::f64};
#endif

void everything(int ranks) {
  CAPTURE(ranks);
  REQUIRE_NOTHROW(on_threads(ranks, [](LocalRank& rank) {
    all_types(rank);
    for (const auto type : kSizes) all_sizes(rank, type, ReduceOp::sum);
  }));
}

}  // namespace

TEST_CASE("every operation is exact for every type and reduction on 1 to 4 ranks",
          "[runtime][shm]") {
  everything(GENERATE(1, 2, 3, 4));
}
TEST_CASE("every operation is exact for every type and reduction on 5 and 6 ranks",
          "[runtime][shm]") {
  everything(GENERATE(5, 6));
}
TEST_CASE("every operation is exact for every type and reduction on 7 ranks", "[runtime][shm]") {
  everything(7);
}
TEST_CASE("every operation is exact for every type and reduction on 8 ranks", "[runtime][shm]") {
  everything(8);
}

TEST_CASE("processes as ranks get the same as threads", "[runtime][shm]") {
  const int ranks = GENERATE(2, 3, 8);
  CAPTURE(ranks);
  for (const auto& outcome : as_processes(ranks, [](LocalRank& rank) {
         all_types(rank);
         all_sizes(rank, DType::bf16, ReduceOp::avg);
       })) {
    INFO(outcome.what);
    CHECK_FALSE(outcome.threw);
  }
}

TEST_CASE("a sum depends neither on the size of the message nor on where it lies",
          "[runtime][shm]") {
  constexpr std::size_t kCount = 100'003;
  const int ranks = GENERATE(2, 3, 8);
  CAPTURE(ranks);
  std::vector<std::vector<float>> of(static_cast<std::size_t>(ranks));
  std::mt19937 random{7};
  std::normal_distribution<float> values;
  for (auto& one : of)
    for (std::size_t i = 0; i < kCount; ++i) one.push_back(values(random));
  std::vector<float> wanted = of[0];  // in the order of the ranks
  for (std::size_t r = 1; r < of.size(); ++r)
    for (std::size_t i = 0; i < kCount; ++i) wanted[i] += of[r][i];

  REQUIRE_NOTHROW(on_threads(ranks, [&](LocalRank& rank) {
    const auto& mine = of[static_cast<std::size_t>(rank.rank())];
    for (const std::size_t part : {kCount, std::size_t{50'001}, std::size_t{7'000}}) {
      Buffer data{kCount * sizeof(float), part % 5};
      std::memcpy(data.data(), mine.data(), kCount * sizeof(float));
      for (std::size_t at = 0; at < kCount; at += part)
        rank.all_reduce(data.data() + at * sizeof(float), std::min(part, kCount - at), DType::f32);
      if (std::memcmp(data.data(), wanted.data(), kCount * sizeof(float)) != 0)
        throw std::runtime_error{"the bits depend on the size of the message"};
    }
  }));
}

TEST_CASE("half precision is summed up in float and rounded once", "[runtime][shm]") {
  // In half precision 2048 + 1 is 2048, however often; and 65504 + 65504 is no number.
  REQUIRE_NOTHROW(on_threads(8, [](LocalRank& rank) {
    Half sums[2] = {Half{rank.rank() == 0 ? 2048.0f : 1.0f}, Half{1.0f}};
    rank.all_reduce(sums, 2, DType::f16);
    if (float{sums[0]} != 2056.0f) throw std::runtime_error{"ones were lost on the way"};  // even
    Half large{60'000.0f};
    rank.all_reduce(&large, 1, DType::f16, ReduceOp::avg);
    if (float{large} != float{Half{60'000.0f}}) throw std::runtime_error{"the mean overflowed"};
  }));
}

TEST_CASE("256 ranks are possible", "[runtime][shm]") {
#if defined(__SANITIZE_THREAD__)
  constexpr int kRanks = 40;
#else
  constexpr int kRanks = 256;
#endif
  REQUIRE_NOTHROW(on_threads(kRanks, [](LocalRank& rank) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{20'000}}) {
      const Case c{.type = DType::i32, .count = count, .round = count};
      verify_all_reduce(rank, c);
      verify_broadcast(rank, c);
    }
    const Case c{.type = DType::i32, .count = 100, .round = 9};
    verify_all_gather(rank, c);
    verify_all_to_all(rank, c);
    verify_reduce_scatter(rank, c);
    verify_scatter(rank, c);
    verify_send_recv(rank, c);
  }));
  CHECK_THROWS_AS(segment_bytes(513), Error);
  CHECK_THROWS_AS(segment_bytes(0), Error);
}

TEST_CASE("messages of a pair keep their order, and a rank can send to itself", "[runtime][shm]") {
  REQUIRE_NOTHROW(on_threads(2, [](LocalRank& rank) {
    std::vector<int> values(50'000);  // more than the ring holds
    for (int round = 0; round < 20; ++round) {
      const auto count = static_cast<std::size_t>(round % 4 == 0 ? 50'000 : round);
      if (rank.rank() == 0) {
        std::fill(values.begin(), values.end(), round);
        rank.send(values.data(), count, DType::i32, 1);
      } else {
        std::fill(values.begin(), values.end(), -1);
        rank.recv(values.data(), count, DType::i32, 0);
        const auto same = std::count(values.begin(), values.end(), round);
        if (same != static_cast<std::ptrdiff_t>(count)) throw std::runtime_error{"out of order"};
      }
    }
    int mine = rank.rank() + 5;
    int got = 0;
    rank.send(&mine, 1, DType::i32, rank.rank());
    rank.recv(&got, 1, DType::i32, rank.rank());
    if (got != mine) throw std::runtime_error{"what was sent to itself"};
  }));
}

TEST_CASE(
    "two ranks that send each other more than is buffered need a second thread, and may have it",
    "[runtime][shm]") {
  REQUIRE_NOTHROW(on_threads(2, [](LocalRank& rank) {
    const std::vector<int> mine(100'000, rank.rank());
    std::vector<int> theirs(100'000, -1);
    const int other = 1 - rank.rank();
    std::thread sender{[&] { rank.send(mine.data(), mine.size(), DType::i32, other); }};
    rank.recv(theirs.data(), theirs.size(), DType::i32, other);
    sender.join();
    if (theirs != std::vector<int>(100'000, other)) throw std::runtime_error{"wrong message"};
  }));
}
