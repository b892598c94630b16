#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/random.hpp>
#include <cmath>
#include <random>
#include <set>

using namespace acc::runtime;

namespace {

/// xoshiro256++ and SplitMix64 once more, from their authors' descriptions.
struct ByTheBook {
  std::uint64_t s[4];
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  ByTheBook(std::uint64_t seed, std::uint64_t stream) {
    std::uint64_t state = mix(seed) ^ mix(~stream);
    for (auto& word : s) word = mix(state += 0x9E3779B97F4A7C15U);
  }
  static std::uint64_t turned(std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }
  std::uint64_t operator()() {
    const std::uint64_t result = turned(s[0] + s[3], 23) + s[0];
    const std::uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = turned(s[3], 45);
    return result;
  }
};

}  // namespace

TEST_CASE("a generator gives the numbers that its description says", "[runtime][training]") {
  for (const std::uint64_t seed : {0ULL, 42ULL, ~0ULL}) {
    for (const std::uint64_t stream : {0ULL, 1ULL, 7ULL}) {
      Generator generator{seed, stream};
      ByTheBook book{seed, stream};
      for (int i = 0; i < 100; ++i) CHECK(generator() == book());
    }
  }
}

TEST_CASE("streams of one seed differ", "[runtime][training]") {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t stream = 0; stream < 1000; ++stream) firsts.insert(Generator{42, stream}());
  CHECK(firsts.size() == 1000);
}

TEST_CASE("a generator goes on from its saved state", "[runtime][training]") {
  Generator generator{7, 3};
  for (int i = 0; i < 5; ++i) generator();
  const std::string state = generator.state();
  Generator other;
  other.restore(state);
  CHECK(other == generator);
  CHECK(other() == generator());
  for (const char* text :
       {"", "xoshiro256++", "xoshiro256++ 1 2 3", "xoshiro256++ 1 2 3 4 5", "xoshiro256++ 0 0 0 0",
        "xoshiro256++ 1 2 3 x", "mt19937 1 2 3 4", "xoshiro256++ 1 2 3 11111111111111111"})
    CHECK_THROWS_AS(other.restore(text), Error);
  CHECK(other == generator);
}

TEST_CASE("uniform and normal numbers have the moments they should", "[runtime][training]") {
  Generator generator{1};
  double sum = 0, normal_sum = 0, squares = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double u = generator.uniform();
    REQUIRE((u >= 0 && u < 1));
    sum += u;
    const double n = generator.normal();
    normal_sum += n;
    squares += n * n;
  }
  CHECK(sum / kCount == Approx(0.5).margin(0.005));
  CHECK(normal_sum / kCount == Approx(0).margin(0.01));
  CHECK(squares / kCount == Approx(1).margin(0.02));
  // And <random> takes it.
  CHECK(std::uniform_int_distribution<int>{3, 3}(generator) == 3);
}
