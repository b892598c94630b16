#include "runtime/training/exact_squares.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace acc::runtime;
using namespace acc::runtime::training;

namespace {

template <class T>
std::vector<T> wild_values(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 engine{seed};
  std::vector<T> values;
  while (values.size() < count) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const T value = std::bit_cast<T>(static_cast<Bits>(engine()));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

}  // namespace

TEST_CASE("the sum of squares is right to the last places of a double", "[runtime][training]") {
  std::mt19937 engine{5};
  std::vector<float> values(300'000);
  long double expected = 0;
  for (float& value : values) {
    value = static_cast<float>(engine()) / 1e9F - 2.0F;
    expected += static_cast<long double>(value) * value;
  }
  ExactSquares squares{false};
  squares.add(values.data(), DType::f32, values.size());
  CHECK(static_cast<double>(std::abs(squares.total() / expected - 1)) < 1e-14);
}

TEST_CASE("squares that no double holds are added all the same", "[runtime][training]") {
  const std::vector<double> values{1e300, 3e-200, 4e-200,
                                   std::numeric_limits<double>::denorm_min()};
  ExactSquares large{true};
  large.add(values.data(), DType::f64, 1);
  CHECK(static_cast<double>(std::sqrt(large.total())) == 1e300);
  ExactSquares small{true};
  small.add(values.data() + 1, DType::f64, 2);
  CHECK(static_cast<double>(std::sqrt(small.total())) == Approx(5e-200));
  ExactSquares tiny{true};
  tiny.add(values.data() + 3, DType::f64, 1);
  CHECK(static_cast<double>(std::sqrt(tiny.total())) == std::numeric_limits<double>::denorm_min());
}

TEST_CASE("a square is exact for any mantissa", "[runtime][training]") {
  for (const double value : wild_values<double>(2000, 9)) {
    if (std::abs(std::log2(std::abs(value))) > 400) continue;  // fma must not underflow
    ExactSquares squares{true};
    squares.add(&value, DType::f64, 1);
    // fma tells what the rounded product lost.
    const double rounded = value * value;
    const long double exact = static_cast<long double>(rounded) +
                              static_cast<long double>(std::fma(value, value, -rounded));
    CHECK(std::abs(squares.total() - exact) <= exact * 2e-19L);
  }
}

TEST_CASE("any cut over ranks and any order gives the same bits", "[runtime][training]") {
  auto floats = wild_values<float>(20'000, 1);
  auto doubles = wild_values<double>(5'000, 2);
  ExactSquares together{true};
  together.add(floats.data(), DType::f32, floats.size());
  together.add(doubles.data(), DType::f64, doubles.size());

  std::mt19937 engine{4};
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    std::shuffle(floats.begin(), floats.end(), engine);
    std::shuffle(doubles.begin(), doubles.end(), engine);
    std::vector<std::uint64_t> sum;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ExactSquares part{true};
      const auto cut = [&](std::size_t size, std::size_t r) {
        return size * r * r / (ranks * ranks);
      };
      const std::size_t f = cut(floats.size(), rank), d = cut(doubles.size(), rank);
      part.add(floats.data() + f, DType::f32, cut(floats.size(), rank + 1) - f);
      part.add(doubles.data() + d, DType::f64, cut(doubles.size(), rank + 1) - d);
      const auto words = part.words();
      sum.resize(words.size());
      for (std::size_t i = 0; i < words.size(); ++i) sum[i] += words[i];
    }
    ExactSquares all{true};
    all.set_words(sum);
    CHECK(all.total() == together.total());
  }
}

TEST_CASE("an infinity makes the sum infinite, and NaN wins", "[runtime][training]") {
  std::vector<float> values(100'000, 1.0F);
  values[77'777] = -INFINITY;
  ExactSquares squares{false};
  squares.add(values.data(), DType::f32, values.size());
  CHECK_FALSE(squares.finite());
  CHECK(std::isinf(squares.total()));
  ExactSquares of_ranks{false};  // it is a part of what the ranks add up
  of_ranks.set_words(squares.words());
  CHECK_FALSE(of_ranks.finite());
  CHECK(std::isinf(of_ranks.total()));
  Half nan;
  nan.bits = 0x7e00;
  squares.add(&nan, DType::f16, 1);
  CHECK(std::isnan(squares.total()));
  of_ranks.set_words(squares.words());
  CHECK(std::isnan(of_ranks.total()));
}
