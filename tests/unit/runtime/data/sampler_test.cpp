#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/sampler.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

using namespace acc::runtime;

namespace {

std::vector<std::size_t> all(const IndexOrder& order) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < order.size(); ++i) indices.push_back(order[i]);
  return indices;
}

}  // namespace

// The numbers were made by an independent program from the description in the header. They may
// never change: a checkpoint keeps seed and epoch and relies on the rest.
TEST_CASE("the generator gives the numbers that its description gives", "[runtime][data]") {
  Random random{42};
  for (const auto expected :
       {0x7d995d697d371fb1U, 0x4189f270c2379689U, 0xe7477dbb99ca99d6U, 0xd0eba476fcc26910U})
    CHECK(random.next() == expected);
  Random other_stream{0, 7};
  CHECK(other_stream.next() == 0x19cd99e6943b14adU);
  CHECK(other_stream.next() == 0xc48399d13f4494dcU);
  Random wide{9};
  for (const auto expected : {1793025443176021020U, 858227042946259851U, 5834428409981161225U})
    CHECK(wide.below((std::uint64_t{1} << 63) + 1) == expected);
}

TEST_CASE("more samples than memory could ever hold aren't shuffled, by an Error of this library",
          "[runtime][data]") {
  const auto most = std::numeric_limits<std::size_t>::max();
  CHECK_THROWS_AS(IndexOrder::shuffled(most, 1, 0), Error);
  CHECK_THROWS_WITH(IndexOrder::shuffled((std::size_t{1} << 40) + 1, 1, 0),
                    "a shuffled order of 1099511627777 samples: at most 2^40 can be shuffled");
  CHECK(IndexOrder::sequential(most).largest() == most - 1);
}

TEST_CASE("an order is the same for ever", "[runtime][data]") {
  using Order = std::vector<std::size_t>;
  CHECK(all(IndexOrder::shuffled(10, 42, 0)) == Order{6, 0, 9, 1, 8, 3, 5, 7, 2, 4});
  CHECK(all(IndexOrder::shuffled(10, 42, 1)) == Order{0, 1, 8, 9, 2, 6, 4, 5, 3, 7});
  CHECK(all(IndexOrder::shuffled(10, 43, 0)) == Order{6, 5, 7, 4, 8, 1, 0, 9, 2, 3});
  const auto large = IndexOrder::shuffled(60'000, 1, 2);
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < large.size(); ++i) digest = digest * 31 + large[i];
  CHECK(digest == 13348865940383467486U);
}

TEST_CASE("a shuffled epoch has every sample exactly once", "[runtime][data]") {
  for (const std::size_t size : {0U, 1U, 2U, 3U, 7U, 64U, 1000U, 4097U}) {
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      auto indices = all(RandomSampler{size, 11}.order(epoch));
      std::sort(indices.begin(), indices.end());
      CHECK(indices == all(SequentialSampler{size}.order(epoch)));
    }
  }
}

TEST_CASE("epochs and seeds have orders of their own", "[runtime][data]") {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    return all(RandomSampler{100, seed}.order(epoch));
  };
  CHECK(order(1, 1) == order(1, 1));
  CHECK(order(1, 1) != order(1, 2));
  CHECK(order(1, 1) != order(2, 1));
  // In the original these two are the same.
  CHECK(order(1, 1) != order(2, 0));
}

TEST_CASE("each of the orders of four samples is as likely", "[runtime][data]") {
  std::array<int, 256> seen{};
  constexpr int kTries = 24'000;
  for (int epoch = 0; epoch < kTries; ++epoch) {
    const auto order = IndexOrder::shuffled(4, 5, static_cast<std::uint64_t>(epoch));
    ++seen[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]];
  }
  int orders = 0;
  double chi = 0;
  for (const int count : seen) {
    if (count == 0) continue;
    ++orders;
    chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
  }
  CHECK(orders == 24);
  CHECK(chi < 49.7);  // 23 degrees of freedom: above that in 1 of 1000, and the seed is fixed
}

TEST_CASE("numbers below a bound stay there and reach all of it", "[runtime][data]") {
  Random random{3};
  CHECK(random.below(0) == 0);
  CHECK(random.below(1) == 0);
  CHECK(random.next() == Random{3}.next());  // the two drew no number
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) ++seen.at(random.below(7));
  for (const int count : seen) CHECK(count > 850);
  for (int i = 0; i < 1000; ++i) {
    const double value = random.uniform();
    CHECK((value >= 0 && value < 1));
  }
}

TEST_CASE("an order may be anybody's list", "[runtime][data]") {
  const auto order = IndexOrder::of({5, 5, 1});
  CHECK(all(order) == std::vector<std::size_t>{5, 5, 1});
  CHECK(IndexOrder{}.size() == 0);
}
