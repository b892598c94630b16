#include "tests/support/reference_math.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <string>

// The public calls over the reference backend: that arguments go where they belong, and that the
// reference itself, which others are compared with, is right.

using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::reference_reduce;

namespace {

void expect(bool truth, const std::string& what) {
  if (!truth) throw std::runtime_error{what};
}

// Depends on the rank and on the place.
std::int32_t value(int rank, std::size_t i) { return rank * 1000 + static_cast<std::int32_t>(i); }

std::vector<std::int32_t> values(int rank, std::size_t count) {
  std::vector<std::int32_t> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = value(rank, i);
  return made;
}

constexpr std::int32_t kPoison = -77;
constexpr auto kType = DType::i32;
constexpr std::size_t kCount = 7;

void check_sums(ProcessGroup& group) {
  const int n = group.size();
  const auto mine = values(group.rank(), kCount);
  std::vector<std::int32_t> got(kCount, kPoison);
  group.all_reduce(mine.data(), got.data(), kCount, kType);
  for (std::size_t i = 0; i < kCount; ++i)
    expect(got[i] == 1000 * n * (n - 1) / 2 + n * static_cast<int>(i), "all_reduce");
  for (int root = 0; root < n; ++root) {
    std::fill(got.begin(), got.end(), kPoison);
    group.reduce(mine.data(), got.data(), kCount, kType, ReduceOp::max, root);
    const bool is_root = group.rank() == root;
    for (std::size_t i = 0; i < kCount; ++i)
      expect(got[i] == (is_root ? value(n - 1, i) : kPoison), "reduce");
  }
  const auto wide = values(group.rank(), kCount * static_cast<std::size_t>(n));
  group.reduce_scatter(wide.data(), got.data(), kCount, kType, ReduceOp::min);
  for (std::size_t i = 0; i < kCount; ++i)
    expect(got[i] == value(0, kCount * static_cast<std::size_t>(group.rank()) + i),
           "reduce_scatter");
}

void check_moves(ProcessGroup& group) {
  const auto n = static_cast<std::size_t>(group.size());
  const int me = group.rank();
  const auto mine = values(me, kCount);
  std::vector<std::int32_t> all(kCount * n, kPoison);
  group.all_gather(mine.data(), all.data(), kCount, kType);
  const auto check_all = [&](const char* what) {
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t i = 0; i < kCount; ++i)
        expect(all[r * kCount + i] == value(static_cast<int>(r), i), what);
  };
  check_all("all_gather");
  for (int root = 0; root < group.size(); ++root) {
    std::fill(all.begin(), all.end(), kPoison);
    group.gather(mine.data(), me == root ? all.data() : nullptr, kCount, kType, root);
    if (me == root) check_all("gather");
    std::vector<std::int32_t> part(kCount, kPoison);
    group.scatter(me == root ? all.data() : nullptr, part.data(), kCount, kType, root);
    expect(part == mine, "scatter");
    auto data = me == root ? mine : std::vector<std::int32_t>(kCount, kPoison);
    group.broadcast(data.data(), kCount, kType, root);
    expect(data == values(root, kCount), "broadcast");
  }
  std::vector<std::int32_t> out;
  for (std::size_t to = 0; to < n; ++to)
    for (std::size_t i = 0; i < kCount; ++i)
      out.push_back(me * 100 + static_cast<int>(to * 10 + i));
  group.all_to_all(out.data(), all.data(), kCount, kType);
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t i = 0; i < kCount; ++i)
      expect(all[from * kCount + i] == static_cast<int>(from) * 100 + me * 10 + static_cast<int>(i),
             "all_to_all");
}

void check_uneven(ProcessGroup& group) {
  const auto n = static_cast<std::size_t>(group.size());
  std::vector<std::size_t> counts;
  std::size_t sum = 0;
  for (std::size_t r = 0; r < n; ++r) sum += counts.emplace_back(r * 2 % 5);
  const auto me = static_cast<std::size_t>(group.rank());
  const auto mine = values(group.rank(), counts[me]);
  for (int root = -1; root < group.size(); ++root) {
    std::vector<std::int32_t> all(sum, kPoison);
    if (root < 0)
      group.all_gather_v(mine.data(), all.data(), counts, kType);
    else
      group.gather_v(mine.data(), all.data(), counts, kType, root);
    if (root >= 0 && root != group.rank()) continue;
    std::size_t at = 0;
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t i = 0; i < counts[r]; ++i, ++at)
        expect(all[at] == value(static_cast<int>(r), i), "uneven");
  }
}

void check_in_place(ProcessGroup& group) {
  const auto n = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  auto data = values(group.rank(), kCount * n);
  group.all_gather(data.data() + me * kCount, data.data(), kCount, kType);
  for (std::size_t r = 0; r < n; ++r)
    expect(data[r * kCount] == value(static_cast<int>(r), r * kCount), "all_gather in place");
  data = values(group.rank(), kCount * n);
  group.reduce_scatter(data.data(), data.data() + me * kCount, kCount, kType, ReduceOp::max);
  for (std::size_t i = 0; i < kCount; ++i)
    expect(data[me * kCount + i] == value(group.size() - 1, me * kCount + i),
           "reduce_scatter in place");
}

void check_objects(ProcessGroup& group) {
  const int n = group.size();
  const auto object = [](int r) {
    return std::string(static_cast<std::size_t>(r) * 1000, static_cast<char>(r));
  };
  std::vector<std::string> all;
  for (int r = 0; r < n; ++r) all.push_back(object(r));
  expect(group.all_gather_object(object(group.rank())) == all, "all_gather_object");
  for (int root = 0; root < n; ++root) {
    const bool is_root = group.rank() == root;
    const auto got = group.gather_object(object(group.rank()), root);
    expect(is_root ? got == all : got.empty(), "gather_object");
    expect(group.broadcast_object(is_root ? "from the root" : "x", root) == "from the root",
           "broadcast_object");
    expect(group.broadcast_object("", root).empty(), "an empty object");
    expect(group.scatter_object(is_root ? all : std::vector<std::string>{}, root) ==
               object(group.rank()),
           "scatter_object");
  }
}

void check_messages(ProcessGroup& group) {
  if (group.size() < 2) return;
  const int right = (group.rank() + 1) % group.size();
  const int left = (group.rank() + group.size() - 1) % group.size();
  for (std::size_t count = 0; count < 5; ++count) {
    const auto mine = values(group.rank(), count);
    std::vector<std::int32_t> got(count, kPoison);
    const auto sent = group.send_async(mine.data(), count, kType, right);
    group.recv(got.data(), count, kType, left);
    sent.wait();
    expect(got == values(left, count), "send and recv");
  }
}

}  // namespace

TEST_CASE("every operation gives what it should on 1 to 8 ranks", "[collectives]") {
  const auto check = [](ProcessGroup& group) {
    check_sums(group);
    check_moves(group);
    check_uneven(group);
    check_in_place(group);
    check_objects(group);
    check_messages(group);
    group.barrier();
  };
  for (int n = 1; n <= 8; ++n) {
    INFO(n << " ranks");
    CHECK_NOTHROW(on_ranks(n, check));  // the reference
    GroupOptions options;
    options.backend = BackendKind::cpu;
    options.timeout = std::chrono::seconds{20};
    auto groups = ProcessGroup::threads(n, options);
    CHECK_NOTHROW(acc::testing::on_all(groups, check));
  }
}

TEST_CASE("the typed forms", "[collectives]") {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<double> x{1.0, static_cast<double>(group.rank())};
    group.all_reduce(std::span{x}, ReduceOp::avg);
    expect(x == std::vector{1.0, 1.0}, "all_reduce");
    std::vector<double> all(6);
    group.all_gather(std::span<const double>{x}, std::span{all});
    expect(all[5] == 1.0, "all_gather");
    std::vector<double> part(2);
    group.reduce_scatter(std::span<const double>{all}, std::span{part});
    expect(part[0] == 3.0, "reduce_scatter");
    std::vector<double> roots{group.rank() == 2 ? 5.0 : 0.0};
    group.broadcast(std::span{roots}, 2);
    expect(roots[0] == 5.0, "broadcast");
  });
}

TEST_CASE("ranks that call different things all learn it, and who", "[collectives]") {
  auto groups = acc::testing::thread_groups(3);
  std::vector<std::string> told(3);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    try {
      float x[8] = {};
      if (group.rank() == 1)
        group.barrier();
      else
        group.all_reduce(x, x, 8, DType::f32);
    } catch (const Error& e) {
      expect(e.code() == ErrorCode::mismatch && e.ranks() == std::vector{1}, "the kind");
      told[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  for (const auto& text : told)
    CHECK_THAT(text, Catch::EndsWith("rank 1: barrier #1, ranks 0,2: all_reduce f32 x8 sum #1"));
}

TEST_CASE("a rank that doesn't come is named, with what it did last", "[collectives]") {
  auto groups = acc::testing::thread_groups(3);
  std::vector<std::string> told(3);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 2) return;
    try {
      group.barrier({.timeout = Millis{100}});
    } catch (const Error& e) {
      expect(e.code() == ErrorCode::timed_out && e.ranks() == std::vector{2}, "the kind");
      told[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  for (const int r : {0, 1})
    CHECK_THAT(told[static_cast<std::size_t>(r)],
               Catch::Contains("rank 2 didn't come; rank 2 completed last: barrier #1"));
}

TEST_CASE("the reference sums halves in float and integers in their own type", "[collectives]") {
  const Half large{60000.0F};
  const Half less{-60000.0F};
  const void* halves[] = {&large, &large, &less};
  Half half;
  reference_reduce(halves, &half, 1, DType::f16, ReduceOp::sum);
  CHECK(static_cast<float>(half) == 60000.0F);  // no infinity on the way
  reference_reduce(std::span{halves}.first(2), &half, 1, DType::f16, ReduceOp::avg);
  CHECK(static_cast<float>(half) == 60000.0F);

  const std::int8_t a = 100;
  const std::int8_t b = -7;
  const void* bytes[] = {&a, &a};
  std::int8_t byte = 0;
  reference_reduce(bytes, &byte, 1, DType::i8, ReduceOp::sum);
  CHECK(byte == -56);
  const void* odd[] = {&b, &b, &b, &b};
  reference_reduce(std::span{odd}.first(2), &byte, 1, DType::i8, ReduceOp::avg);
  CHECK(byte == -7);
  const std::int8_t zero = 0;
  const void* truncated[] = {&b, &zero};
  reference_reduce(truncated, &byte, 1, DType::i8, ReduceOp::avg);
  CHECK(byte == -3);
}
