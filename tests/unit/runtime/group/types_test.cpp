#include <catch2/catch.hpp>

#include <acc/types.hpp>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace acc::runtime;

namespace {

// The half nearest to `value` by looking at both neighbours: an oracle without tricks.
std::uint16_t nearest_half(float value) {
  if (std::isnan(value)) return 0x7e00;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto of = [](std::uint32_t bits) {  // the double of a finite positive half
    const std::uint32_t exponent = bits >> 10;
    const double mantissa = bits & 0x3ffU;
    return exponent == 0 ? std::ldexp(mantissa, -24)
                         : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
  };
  std::uint32_t low = 0;
  std::uint32_t high = 0x7c00;  // its formula gives 65536, the next step: what infinity stands for
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (of(middle) <= magnitude ? low : high) = middle;
  }
  if (std::isinf(value) || magnitude >= of(0x7c00)) return sign | 0x7c00;
  const double down = magnitude - of(low);
  const double up = of(high) - magnitude;
  const std::uint32_t best = down < up || (down == up && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(sign | best);
}

template <class Visit>
void near(std::uint32_t bits, Visit visit) {
  for (std::int64_t step = -2; step <= 2; ++step)
    visit(std::bit_cast<float>(static_cast<std::uint32_t>(bits + step)));
}

}  // namespace

TEST_CASE("every half goes to float and back unchanged", "[types]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(half);
    if (std::isnan(wide)) {
      const bool is_nan = (bits & 0x7c00U) == 0x7c00U && (bits & 0x3ffU) != 0;
      wrong += !is_nan || !std::isnan(static_cast<float>(Half{wide}));
    } else {
      wrong += Half{wide} != half;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a float becomes the nearest half, ties to even, at every half and every tie",
          "[types]") {
  int wrong = 0;
  const auto check = [&](float value) {
    if (std::isnan(value)) return;
    wrong += Half{value}.bits != nearest_half(value);
  };
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    Half half;
    Half next;
    half.bits = static_cast<std::uint16_t>(bits);
    next.bits = static_cast<std::uint16_t>(bits + 1);
    const auto low = static_cast<float>(half);
    const float high = bits + 1 == 0x7c00 ? 65536.0F : static_cast<float>(next);
    const float tie = low + (high - low) / 2;  // exact: one more bit
    for (const float at : {low, tie})
      near(std::bit_cast<std::uint32_t>(at), [&](float v) {
        check(v);
        check(-v);
      });
  }
  check(std::numeric_limits<float>::infinity());
  check(std::numeric_limits<float>::max());
  check(std::numeric_limits<float>::denorm_min());
  CHECK(wrong == 0);
}

TEST_CASE("all floats of a coarse grid become the nearest half", "[types]") {
  int wrong = 0;
  for (std::uint64_t bits = 0; bits < 0x7f800000U; bits += 7919) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    wrong += Half{value}.bits != nearest_half(value);
  }
  CHECK(wrong == 0);
}

TEST_CASE("halves: NaN stays NaN, signs stay, too large is infinity", "[types]") {
  CHECK(std::isnan(static_cast<float>(Half{std::numeric_limits<float>::quiet_NaN()})));
  // A signalling NaN whose payload doesn't fit would be cut to infinity.
  CHECK(std::isnan(static_cast<float>(Half{std::bit_cast<float>(0x7f800001U)})));
  CHECK(Half{-0.0F}.bits == 0x8000);
  CHECK(Half{65519.996F}.bits == 0x7bff);
  CHECK(Half{65520.0F}.bits == 0x7c00);
  CHECK(Half{-65520.0F}.bits == 0xfc00);
}

TEST_CASE("a bfloat16 is the upper half of a float, ties to even", "[types]") {
  int wrong = 0;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    BFloat16 b;
    b.bits = static_cast<std::uint16_t>(upper);
    const auto wide = static_cast<float>(b);
    if (std::isnan(wide)) {
      wrong += !std::isnan(static_cast<float>(BFloat16{wide}));
      continue;
    }
    const auto with = [&](std::uint32_t lower) {
      return BFloat16{std::bit_cast<float>(upper << 16 | lower)}.bits;
    };
    wrong += with(0) != upper;
    if ((upper & 0x7fffU) == 0x7f80U) continue;  // infinity has no neighbours above
    wrong += with(0x7fff) != upper;
    wrong += with(0x8000) != (upper % 2 == 0 ? upper : upper + 1);
    wrong += with(0x8001) != upper + 1;
    wrong += with(0xffff) != upper + 1;
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(static_cast<float>(BFloat16{std::bit_cast<float>(0x7f800001U)})));
  CHECK(std::isinf(static_cast<float>(BFloat16{std::numeric_limits<float>::max()})));
}

TEST_CASE("types, reductions, devices and shapes have names", "[types]") {
  CHECK(to_string(DType::i8) == "i8");
  CHECK(to_string(DType::bf16) == "bf16");
  CHECK(to_string(static_cast<DType>(10)) == "?");
  CHECK(to_string(ReduceOp::avg) == "avg");
  CHECK(to_string(Device{}) == "cpu");
  CHECK(to_string(Device{Device::Kind::cuda, 1}) == "cuda:1");
  CHECK(to_string(Shape{2, 3}) == "[2, 3]");
  CHECK(to_string(Shape{}) == "[]");
  CHECK(count_of({}) == 1);
  CHECK(count_of({2, 0, 3}) == 0);
  CHECK(count_of({2, 3}) == 6);
}

TEST_CASE("the elements of a shape that nobody can have wrapped around", "[runtime][types]") {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  constexpr auto kMost = std::numeric_limits<std::size_t>::max();
  CHECK(count_of({kLarge + 1, 4}) == kMost);
  CHECK(count_of({kLarge, 4, 4}) == kMost);
  CHECK(count_of({kLarge, 4, 0}) == 0);
  CHECK(count_of({kLarge}) == static_cast<std::size_t>(kLarge));
  CHECK_THROWS_WITH((HostTensor{DType::f32, {2, -1}}),
                    Catch::Contains("[2, -1]") && Catch::Contains("negative"));
  CHECK_THROWS_WITH((HostTensor{DType::f32, {kLarge}}), Catch::Contains("can have"));
}
