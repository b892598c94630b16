#include "runtime/training/cast.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace acc::runtime;
using namespace acc::runtime::training;

TEST_CASE("every float of a wide sample is rounded to 16 bits as Half and BFloat16 round",
          "[runtime][training]") {
  std::mt19937 engine{3};
  std::vector<float> values;
  for (int i = 0; i < 200'003; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(engine())));
  for (const float special : {0.0F, -0.0F, 65504.0F, 65520.0F, 6e-8F, 2.9e-8F, INFINITY, -INFINITY})
    values.push_back(special);
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> narrow_ones(values.size());
    narrow(values.data(), DType::f32, narrow_ones.data(), type, values.size(), 1.0);
    std::vector<float> back(values.size());
    widen(narrow_ones.data(), type, back.data(), DType::f32, values.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = type == DType::f16 ? static_cast<float>(Half{values[i]})
                                                : static_cast<float>(BFloat16{values[i]});
      const bool same = std::isnan(values[i]) ? std::isnan(back[i])
                                              : std::bit_cast<std::uint32_t>(expected) ==
                                                    std::bit_cast<std::uint32_t>(back[i]);
      wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the factor is applied before 16 bits are too few", "[runtime][training]") {
  const std::vector<double> values{192'000, 1e300, -3};
  std::vector<Half> halves(values.size());
  narrow(values.data(), DType::f64, halves.data(), DType::f16, values.size(), 0.25);
  CHECK(static_cast<float>(halves[0]) == 48'000.0F);
  CHECK(static_cast<float>(halves[1]) == INFINITY);
  std::vector<double> back(values.size());
  widen(halves.data(), DType::f16, back.data(), DType::f64, values.size());
  CHECK(back[2] == -0.75);
}
