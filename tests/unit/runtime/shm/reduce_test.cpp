#include "runtime/shm/reduce.hpp"

#include "tests/support/collective_oracle.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace acc::runtime;
using namespace acc::testing;

TEST_CASE("reductions of any number of inputs are exact at any address", "[runtime][shm]") {
  for (const auto type : kAllTypes) {
    for (const auto op : kAllOps) {
      for (int number = 1; number <= 8; ++number) {
        for (const std::size_t count : {0u, 1u, 17u, 5'003u}) {
          const auto off = static_cast<std::size_t>(number);
          std::vector<Buffer> sources;
          std::vector<const void*> inputs_of;
          for (int r = 0; r < number; ++r)
            sources.emplace_back(inputs(type, op, 0, count, r, number, 1), off * 3 % 7);
          for (auto& source : sources) inputs_of.push_back(source.data());
          Buffer out{count * size_of(type), off % 5};
          Buffer also{count * size_of(type), off};
          const auto wanted = reductions(type, op, 0, count, number, 1);
          const auto& how = reduction(type, op);
          how.all(out.data(), also.data(), inputs_of.data(), number, count, number);
          CAPTURE(to_string(type), to_string(op), number, count);
          REQUIRE(out.holds(wanted));
          REQUIRE(also.holds(wanted));
          // In steps, and into one of the inputs.
          Buffer partial{count * size_of(partial_type(type))};
          how.begin(partial.data(), inputs_of[0], count);
          for (int r = 1; r < number; ++r)
            how.add(partial.data(), inputs_of[static_cast<std::size_t>(r)], count);
          Buffer stepwise{count * size_of(type)};
          how.finish(stepwise.data(), partial.data(), count, number);
          REQUIRE(stepwise.holds(wanted));
          auto& last = sources.back();
          how.all(last.data(), nullptr, inputs_of.data(), number, count, number);
          REQUIRE(last.holds(wanted));
        }
      }
    }
  }
}

TEST_CASE("integers wrap around", "[runtime][shm]") {
  const std::int8_t a[2] = {100, 127}, b[2] = {3, 1};
  const void* const both[] = {a, b};
  std::int8_t out[2] = {};
  reduction(DType::i8, ReduceOp::prod).all(out, nullptr, both, 2, 2, 2);
  CHECK((out[0] == 44 && out[1] == 127));
  reduction(DType::i8, ReduceOp::sum).all(out, nullptr, both, 2, 2, 2);
  CHECK((out[0] == 103 && out[1] == -128));
}

TEST_CASE("partial sums can be put together", "[runtime][shm]") {
  const float a[3] = {1, 2, 3};
  float b[3] = {10, 20, 30};
  reduction(DType::bf16, ReduceOp::sum).add_partial(b, a, 3);
  CHECK((b[0] == 11 && b[2] == 33));
  reduction(DType::f32, ReduceOp::max).add_partial(b, a, 3);
  CHECK(b[1] == 22);
}

TEST_CASE("every half and bfloat16 goes through float and back unchanged", "[runtime][shm]") {
  std::vector<std::uint16_t> all(65'536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const auto type : {DType::f16, DType::bf16}) {
    std::vector<float> wide(all.size());
    std::vector<std::uint16_t> back(all.size());
    const auto& how = reduction(type, ReduceOp::sum);
    how.begin(wide.data(), all.data(), all.size());
    how.finish(back.data(), wide.data(), all.size(), 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto bits = all[i];
      float wanted = 0;
      if (type == DType::f16) {
        Half half;
        half.bits = bits;
        wanted = float{half};
      } else {
        BFloat16 brain;
        brain.bits = bits;
        wanted = float{brain};
      }
      CAPTURE(bits);
      if (std::isnan(wanted)) {
        REQUIRE(std::isnan(wide[i]));
      } else {
        REQUIRE(wide[i] == wanted);
        REQUIRE(back[i] == bits);
      }
    }
  }
}

TEST_CASE("floats are rounded to half and bfloat16 as the public types do", "[runtime][shm]") {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < 0x100000000; bits += 0x1357)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const float edge : {65504.0f, 65519.9f, 65520.0f, 5.9604645e-8f, 2.9802322e-8f, 6.1035e-5f})
    values.push_back(edge);
  std::vector<std::uint16_t> halves(values.size());
  std::vector<std::uint16_t> brains(values.size());
  reduction(DType::f16, ReduceOp::sum).finish(halves.data(), values.data(), values.size(), 1);
  reduction(DType::bf16, ReduceOp::sum).finish(brains.data(), values.data(), values.size(), 1);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;  // stays one; any will do
    wrong += halves[i] != Half{values[i]}.bits ? 1 : 0;
    wrong += brains[i] != BFloat16{values[i]}.bits ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a NaN of any rank is the maximum and the minimum, and integers wrap", "[runtime][shm]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[4] = {1, nan, 2, 3};
  const float b[4] = {nan, 1, 5, 0};
  const void* both[2] = {a, b};
  for (const auto op : {ReduceOp::max, ReduceOp::min}) {
    float out[4];
    reduction(DType::f32, op).all(out, nullptr, both, 2, 4, 2);
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK(out[2] == (op == ReduceOp::max ? 5 : 2));
  }
  const std::int8_t large[1] = {100};
  const void* twice[2] = {large, large};
  std::int8_t sum[1];
  reduction(DType::i8, ReduceOp::sum).all(sum, nullptr, twice, 2, 1, 2);
  CHECK(sum[0] == -56);
  std::int32_t negative[1] = {-7};
  const void* one[1] = {negative};
  std::int32_t mean[1];
  reduction(DType::i32, ReduceOp::avg).all(mean, nullptr, one, 1, 1, 2);
  CHECK(mean[0] == -3);  // towards zero
}
