// Every operation over several hosts, with exact values: they depend on rank, index and operation,
// outputs are poisoned, sizes don't divide by anything.
#include "tests/support/reference_math.hpp"
#include "tests/support/uneven_calls.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "hosted_groups.hpp"

using namespace acc::runtime;
using namespace acc::testing;

namespace {

const std::vector<std::string> kLayouts{"ab",   "abc",    "aab",  "abb",
                                        "aabb", "aabbbc", "abab", "abca"};
const std::vector<std::size_t> kCounts{0, 1, 13, 4'099, 70'003};

void expect(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error{what};
}

template <class T>
T value(int rank, std::size_t index) {
  return static_cast<T>((index * 7 + static_cast<std::size_t>(rank) * 13 + index / 64) % 31 + 1);
}
/// Sums of these depend on the order of summing.
template <>
float value<float>(int rank, std::size_t index) {
  return std::ldexp(1.0F + static_cast<float>((index * 37 + 11) % 1009) / 1009.0F,
                    static_cast<int>((index + static_cast<std::size_t>(rank) * 7) % 40) - 20);
}

template <class T>
std::vector<T> values(int rank, std::size_t count, std::size_t from = 0) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = value<T>(rank, from + i);
  return made;
}

/// In the order of the ranks. Kept: every rank asks for it.
template <class T>
const std::vector<T>& reduced(ReduceOp op, int ranks, std::size_t count) {
  static std::mutex mutex;
  static std::map<std::tuple<ReduceOp, int, std::size_t>, std::vector<T>> known;
  const std::lock_guard lock{mutex};
  auto [at, is_new] = known.try_emplace({op, ranks, count});
  auto& result = at->second;
  if (!is_new) return result;
  std::vector<std::vector<T>> inputs;
  std::vector<const void*> from;
  for (int r = 0; r < ranks; ++r) from.push_back(inputs.emplace_back(values<T>(r, count)).data());
  result.resize(count);
  reference_reduce(from, result.data(), count, dtype_of<T>, op);
  return result;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void check_reductions(ProcessGroup& group, ReduceOp op, std::size_t count) {
  const int n = group.size();
  const auto what = std::string{to_string(dtype_of<T>)} + " " + std::string{to_string(op)} + " x" +
                    std::to_string(count);
  const auto mine = values<T>(group.rank(), count);
  const auto& expected = reduced<T>(op, n, count);

  std::vector<T> out(count, T(77));
  group.all_reduce(mine.data(), out.data(), count, dtype_of<T>, op);
  expect(same(out, expected), "all_reduce " + what);
  auto in_place = mine;
  group.all_reduce(std::span{in_place}, op);
  expect(same(in_place, expected), "all_reduce in place " + what);

  const int root = n - 1;
  std::vector<T> at_root(count, T(77));
  group.reduce(mine.data(), at_root.data(), count, dtype_of<T>, op, root);
  expect(
      group.rank() != root ? same(at_root, std::vector<T>(count, T(77))) : same(at_root, expected),
      "reduce " + what);

  const auto whole = values<T>(group.rank(), count * static_cast<std::size_t>(n));
  const auto& all = reduced<T>(op, n, whole.size());
  std::vector<T> part(count, T(77));
  group.reduce_scatter(whole.data(), part.data(), count, dtype_of<T>, op);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(count) * group.rank();
  expect(same(part, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(count))),
         "reduce_scatter " + what);
}

void check_moves(ProcessGroup& group, std::size_t count) {
  using T = std::int32_t;
  const int n = group.size(), me = group.rank();
  const auto size = static_cast<std::size_t>(n);
  const auto what = " x" + std::to_string(count);
  const auto mine = values<T>(me, count);
  std::vector<T> inputs_of_all;
  for (int r = 0; r < n; ++r) {
    const auto theirs = values<T>(r, count);
    inputs_of_all.insert(inputs_of_all.end(), theirs.begin(), theirs.end());
  }
  for (int root = 0; root < n; ++root) {
    auto data = me == root ? mine : std::vector<T>(count, -1);
    group.broadcast(std::span{data}, root);
    expect(same(data, values<T>(root, count)), "broadcast" + what);
    std::vector<T> gathered(me == root ? count * size : 0, -1);
    group.gather(mine.data(), gathered.data(), count, DType::i32, root);
    expect(me != root || same(gathered, inputs_of_all), "gather" + what);
    const auto whole = values<T>(root, count * size);
    std::vector<T> part(count, -1);
    group.scatter(whole.data(), part.data(), count, DType::i32, root);
    expect(same(part, values<T>(root, count, count * static_cast<std::size_t>(me))),
           "scatter" + what);
  }
  std::vector<T> all(count * size, -1);
  group.all_gather(std::span{mine}, std::span{all});
  expect(same(all, inputs_of_all), "all_gather" + what);
  std::fill(all.begin(), all.end(), -1);
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(count) * me);
  group.all_gather(all.data() + count * static_cast<std::size_t>(me), all.data(), count,
                   DType::i32);
  expect(same(all, inputs_of_all), "all_gather in place" + what);

  const auto outgoing = values<T>(me, count * size);
  std::vector<T> incoming(count * size, -1);
  group.all_to_all(outgoing.data(), incoming.data(), count, DType::i32);
  std::vector<T> expected;
  for (int r = 0; r < n; ++r) {
    const auto theirs = values<T>(r, count, count * static_cast<std::size_t>(me));
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  expect(same(incoming, expected), "all_to_all" + what);

  std::vector<std::size_t> counts(size);
  for (std::size_t r = 0; r < size; ++r) counts[r] = r % 2 == 0 ? count + r : count / 2;
  std::vector<T> parts(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), -1);
  std::vector<T> expected_parts;
  for (int r = 0; r < n; ++r) {
    const auto theirs = values<T>(r, counts[static_cast<std::size_t>(r)]);
    expected_parts.insert(expected_parts.end(), theirs.begin(), theirs.end());
  }
  const auto my_part = values<T>(me, counts[static_cast<std::size_t>(me)]);
  group.all_gather_v(my_part.data(), parts.data(), counts, DType::i32);
  expect(same(parts, expected_parts), "all_gather_v" + what);
  std::fill(parts.begin(), parts.end(), -1);
  group.gather_v(my_part.data(), me == 0 ? parts.data() : nullptr, counts, DType::i32, 0);
  expect(me != 0 || same(parts, expected_parts), "gather_v" + what);
}

}  // namespace

TEST_CASE("sums over hosts are taken in the order of the ranks, bit by bit", "[tcp][hosts]") {
  for (const auto& layout : kLayouts) {
    CAPTURE(layout);
    auto groups = hosted_groups(layout);
    const auto said = on_ranks(groups, [](ProcessGroup& group) {
      for (const auto count : kCounts) {
        check_reductions<float>(group, ReduceOp::sum, count);
        check_reductions<std::int32_t>(group, ReduceOp::avg, count);
        if (count == kCounts.back()) continue;
        check_reductions<double>(group, ReduceOp::avg, count);
        check_reductions<std::int64_t>(group, ReduceOp::prod, count);
        check_reductions<std::uint8_t>(group, ReduceOp::max, count);
        check_reductions<float>(group, ReduceOp::min, count);
      }
    });
    CHECK(said == std::vector<std::string>(layout.size(), "well"));
  }
}

TEST_CASE("large sums, in pieces of every kind, come out as small ones do", "[tcp][hosts]") {
  for (const std::string layout : {"ab", "abc", "aabb", "abb"}) {
    CAPTURE(layout);
    auto groups = hosted_groups(layout);
    const auto said = on_ranks(groups, [](ProcessGroup& group) {
      auto data = values<float>(group.rank(), 1'300'003);
      group.all_reduce(std::span{data});
      expect(same(data, reduced<float>(ReduceOp::sum, group.size(), data.size())), "large");
    });
    CHECK(said == std::vector<std::string>(layout.size(), "well"));
  }
}

TEST_CASE("half floats are summed up in float over all hosts and rounded once", "[tcp][hosts]") {
  for (const auto& layout : {"ab", "aabb", "abc", "aba"}) {
    CAPTURE(layout);
    auto groups = hosted_groups(layout);
    const auto said = on_ranks(groups, [](ProcessGroup& group) {
      for (const std::size_t count : {3UL, 50'021UL}) {
        const auto make = [&](int rank) {
          std::vector<BFloat16> made(count);
          for (std::size_t i = 0; i < count; ++i)
            made[i] =
                BFloat16{1.0F / static_cast<float>(i % 97 + 1 + static_cast<std::size_t>(rank))};
          return made;
        };
        auto data = make(group.rank());
        group.all_reduce(std::span{data});
        std::vector<std::vector<BFloat16>> inputs;
        std::vector<const void*> from;
        for (int r = 0; r < group.size(); ++r) from.push_back(inputs.emplace_back(make(r)).data());
        std::vector<BFloat16> wanted(count);
        reference_reduce(from, wanted.data(), count, DType::bf16, ReduceOp::sum);
        expect(same(data, wanted), "bf16");
      }
    });
    CHECK(said == std::vector<std::string>(std::string{layout}.size(), "well"));
  }
}

TEST_CASE("everything that moves gets where it belongs, over any hosts", "[tcp][hosts]") {
  for (const auto& layout : kLayouts) {
    CAPTURE(layout);
    auto groups = hosted_groups(layout);
    const auto said = on_ranks(groups, [](ProcessGroup& group) {
      for (const auto count : kCounts) check_moves(group, count);
    });
    CHECK(said == std::vector<std::string>(layout.size(), "well"));
  }
}

TEST_CASE("counts of each rank's own, and messages at once, over any hosts", "[tcp][hosts]") {
  for (const auto& layout : kLayouts) {
    CAPTURE(layout);
    auto groups = hosted_groups(layout);
    const auto said = on_ranks(groups, [](ProcessGroup& group) {
      acc::testing::uneven::check_calls(group);
      acc::testing::uneven::check_messages(group);
    });
    CHECK(said == std::vector<std::string>(layout.size(), "well"));
  }
}

TEST_CASE("what two ranks of different hosts say of each other is compared", "[tcp][hosts]") {
  auto groups = hosted_groups("aab");
  const auto said = on_ranks(groups, [](ProcessGroup& group) {
    std::vector<float> data(6), into(6);
    std::vector<std::size_t> send(3, 2), recv(3, 2);
    if (group.rank() == 2) send = {2, 1, 3}, recv = {2, 2, 3}, into.resize(7);
    group.all_to_all_v(data, send, into, recv);
  });
  for (const auto& text : said)
    CHECK_THAT(text, Catch::Contains("rank 2 sends 1 elements to rank 1, which expects 2 of it"));
}

TEST_CASE("no rank leaves a barrier before all have arrived", "[tcp][hosts]") {
  auto groups = hosted_groups("aabc");
  std::atomic<int> came{0};
  const auto said = on_ranks(groups, [&](ProcessGroup& group) {
    for (int pass = 1; pass <= 200; ++pass) {
      came.fetch_add(1);
      group.barrier();
      expect(came.load() >= pass * 4, "left too early");
    }
  });
  CHECK(said == std::vector<std::string>(4, "well"));
}

TEST_CASE("messages between ranks of any hosts keep their order", "[tcp][hosts]") {
  auto groups = hosted_groups("aab");
  const auto said = on_ranks(groups, [](ProcessGroup& group) {
    const int n = group.size(), me = group.rank();
    const std::size_t large = 700'001;  // more than sockets hold
    std::vector<Work> sending;
    std::vector<std::vector<float>> kept;
    for (int to = 0; to < n; ++to) {
      for (int k = 0; k < 3; ++k) {
        kept.push_back(values<float>(me * 10 + k, k == 1 ? large : 5));
        sending.push_back(group.send_async(kept.back().data(), kept.back().size(), DType::f32, to));
      }
    }
    for (int from = n - 1; from >= 0; --from) {
      for (int k = 0; k < 3; ++k) {
        std::vector<float> got(k == 1 ? large : 5);
        group.recv_async(got.data(), got.size(), DType::f32, from).wait();  // also from itself
        expect(same(got, values<float>(from * 10 + k, got.size())), "message");
      }
    }
    for (const auto& work : sending) work.wait();
  });
  CHECK(said == std::vector<std::string>(3, "well"));
}

TEST_CASE("registered memory, objects and sub-groups work over hosts", "[tcp][hosts]") {
  auto groups = hosted_groups("aabb");
  const auto said = on_ranks(groups, [](ProcessGroup& group) {
    auto buffer = group.allocate_shared(100'000 * sizeof(float));
    auto data = buffer.as<float>();
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value<float>(group.rank(), i);
    group.all_reduce(data);
    expect(same(std::vector<float>(data.begin(), data.end()),
                reduced<float>(ReduceOp::sum, 4, data.size())),
           "registered");
    const auto objects =
        group.all_gather_object(std::string(static_cast<std::size_t>(group.rank()), 'x'));
    expect(objects == std::vector<std::string>{"", "x", "xx", "xxx"}, "objects");
    auto across = group.split(group.rank() % 2, 0, "across");  // a and b each
    expect(across.size() == 2 && across.local_size() == 1, "across");
    auto within = group.split(group.rank() / 2, 0, "within");
    expect(within.size() == 2 && within.local_size() == 2, "within");
    std::vector<float> one{1.0F};
    across.all_reduce(std::span{one});
    within.all_reduce(std::span{one});
    expect(one[0] == 4.0F, "sum over both");
  });
  CHECK(said == std::vector<std::string>(4, "well"));
}
