#include "runtime/training/bucket_plan.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

using namespace acc::runtime;
using namespace acc::runtime::training;

namespace {

using Plan = std::vector<std::vector<std::size_t>>;

/// Parameters of so many bytes each.
std::vector<Parameter> of_bytes(const std::vector<std::size_t>& sizes, DType type = DType::f32) {
  std::vector<Parameter> parameters;
  for (const std::size_t bytes : sizes) {
    Parameter parameter;
    parameter.value.dtype = type;
    parameter.value.shape = {static_cast<std::int64_t>(bytes / size_of(type))};
    parameters.push_back(parameter);
  }
  return parameters;
}

}  // namespace

TEST_CASE("the last parameters come first, and the first bucket is small", "[runtime][training]") {
  const auto parameters = of_bytes({40, 40, 40, 40, 40, 40});
  CHECK(plan_buckets(parameters, reversed_order(6), {.first = 80, .others = 120}) ==
        Plan{{5, 4}, {3, 2, 1}, {0}});
}

TEST_CASE("no bucket is larger than its limit but for one parameter that is",
          "[runtime][training]") {
  const auto parameters = of_bytes({40, 400, 40, 100});
  CHECK(plan_buckets(parameters, reversed_order(4), {.first = 80, .others = 120}) ==
        Plan{{3}, {2}, {1}, {0}});
}

TEST_CASE("a bucket holds one type on one device", "[runtime][training]") {
  auto parameters = of_bytes({40, 40, 40, 40});
  parameters[1].value.dtype = parameters[3].value.dtype = DType::f16;
  parameters[0].value.device = {Device::Kind::cuda, 1};
  const auto plan = plan_buckets(parameters, reversed_order(4), {.first = 1000, .others = 1000});
  CHECK(plan == Plan{{2}, {3, 1}, {0}});
}

TEST_CASE("any plan has each parameter once, in its order, and buckets that complete one by one",
          "[runtime][training]") {
  std::mt19937 engine{7};
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::size_t> sizes(engine() % 40);
    for (auto& size : sizes) size = 4 * (engine() % 100);
    auto parameters = of_bytes(sizes);
    for (auto& parameter : parameters)
      if (engine() % 3 == 0) parameter.value.dtype = DType::bf16;
    auto order = reversed_order(sizes.size());
    std::shuffle(order.begin(), order.end(), engine);
    const BucketLimits limits{.first = engine() % 400, .others = engine() % 1000};
    const Plan plan = plan_buckets(parameters, order, limits);

    std::vector<std::size_t> position(sizes.size());
    for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    std::vector<std::size_t> all;
    std::size_t complete_at = 0;
    for (const auto& bucket : plan) {
      REQUIRE_FALSE(bucket.empty());
      CHECK(std::ranges::is_sorted(bucket, {}, [&](std::size_t i) { return position[i]; }));
      CHECK(position[bucket.back()] >= complete_at);
      complete_at = position[bucket.back()];
      std::size_t bytes = 0;
      for (const std::size_t i : bucket) {
        CHECK(parameters[i].value.dtype == parameters[bucket[0]].value.dtype);
        bytes += parameters[i].value.bytes();
      }
      CHECK((bucket.size() == 1 || bytes <= std::max(limits.first, limits.others)));
      all.insert(all.end(), bucket.begin(), bucket.end());
    }
    std::ranges::sort(all);
    auto expected = order;
    std::ranges::sort(expected);
    CHECK(all == expected);
  }
}
