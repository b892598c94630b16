#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/training/toy_net.hpp"

#include <catch2/catch.hpp>

#include <acc/clip.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>

using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::random_floats;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Net {
  std::vector<std::vector<float>> values{std::vector<float>(1000), std::vector<float>(3),
                                         std::vector<float>(517)};
  std::vector<std::vector<float>> gradients = values;
  std::vector<Parameter> parameters;
  Net() {
    for (std::size_t i = 0; i < values.size(); ++i)
      parameters.push_back(
          {"p" + std::to_string(i), std::span<float>{values[i]}, std::span<float>{gradients[i]}});
  }
};

}  // namespace

TEST_CASE("gradients are scaled to the norm when it is above", "[runtime][training]") {
  std::vector<float> a{3, 0}, b{0, 4};
  std::vector<double> c{12};
  const std::vector<Parameter> parameters{
      {"a", std::span<float>{a}, std::span<float>{a}},
      {"b", std::span<float>{b}, std::span<float>{b}},
      {"c", std::span<double>{c}, std::span<double>{c}},
  };
  auto found = clip_grad_norm(parameters, 20);
  CHECK(found.norm == 13);
  CHECK_FALSE(found.clipped);
  CHECK(c[0] == 12);
  found = clip_grad_norm(parameters, 6.5);
  CHECK(found.norm == 13);
  CHECK(found.clipped);
  CHECK(a[0] == Approx(1.5));
  CHECK(b[1] == Approx(2));
  CHECK(c[0] == Approx(6));
  found = clip_grad_norm(parameters, 3, Norm::max);
  CHECK(found.norm == Approx(6));
  CHECK(c[0] == Approx(3));
  CHECK_THROWS_AS(clip_grad_norm(parameters, -1), Error);
}

TEST_CASE("an infinity or NaN is told by name, and nothing is changed", "[runtime][training]") {
  for (const float bad : {INFINITY, kNan}) {
    for (const Norm norm : {Norm::l2, Norm::max}) {
      Net net;
      net.gradients[0][0] = 100;
      net.gradients[2][516] = bad;
      const auto found = clip_grad_norm(net.parameters, 1, norm);
      CHECK_FALSE(found.finite());
      CHECK(std::isnan(found.norm) == std::isnan(bad));
      CHECK(found.non_finite == "p2");
      CHECK_FALSE(found.clipped);
      CHECK(net.gradients[0][0] == 100);
    }
  }
}

TEST_CASE("the norm has the same bits on any number of ranks, sharded or not",
          "[runtime][training]") {
  std::mutex mutex;
  std::set<double> norms;
  std::set<std::vector<float>> clipped;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
      on_ranks(ranks, [&](ProcessGroup& group) {
        Net net;
        GradientReducer reducer{
            group, net.parameters, {.bucket_bytes = 2048, .first_bucket_bytes = 64, .mode = mode}};
        for (int round = 0; round < 2; ++round) {
          reducer.zero_gradients();  // the second one is scattered
          for (std::size_t i = 0; i < 3; ++i) {
            std::ranges::copy(random_floats(net.values[i].size(), static_cast<std::uint32_t>(i)),
                              net.gradients[i].begin());
            for (float& g : net.gradients[i])
              g = static_cast<float>(BFloat16{g * std::exp(20 * g)});
            reducer.ready(i);  // of few bits, and the same on every rank: so is the mean
          }
          reducer.finish();
          const auto found = clip_grad_norm(reducer, 0.5);
          const std::scoped_lock lock{mutex};
          CHECK(found.clipped);
          norms.insert(found.norm);
          if (mode == GradientMode::all_reduce) clipped.insert(net.gradients[0]);
        }
      });
    }
  }
  CHECK(norms.size() == 1);
  CHECK(clipped.size() == 1);
}

TEST_CASE("what one rank's part holds is told to all", "[runtime][training]") {
  for (const Norm norm : {Norm::l2, Norm::max}) {
    std::atomic<int> told = 0, named = 0;
    on_ranks(4, [&](ProcessGroup& group) {
      Net net;
      GradientReducer reducer{group, net.parameters, {.mode = GradientMode::reduce_scatter}};
      for (std::size_t i = 0; i < 3; ++i) {
        if (group.rank() == 2 && i == 0) net.gradients[0][999] = kNan;
        reducer.ready(i);
      }
      reducer.finish();
      reducer.zero_gradients();
      for (std::size_t i = 0; i < 3; ++i) {
        if (group.rank() == 2 && i == 0) net.gradients[0][999] = kNan;
        reducer.ready(i);
      }
      reducer.finish();  // the second one is scattered
      const auto found = clip_grad_norm(reducer, 1, norm);
      told += std::isnan(found.norm) ? 1 : 0;
      named += found.non_finite == "p0" ? 1 : 0;
    });
    CHECK(told == 4);
    CHECK(named == 1);
  }
}

TEST_CASE("each element is limited, of any type", "[runtime][training]") {
  std::vector<Half> halves;
  for (const float f : {-7.0F, 0.5F, 9.0F}) halves.emplace_back(f);
  std::vector<float> floats{-2, 2, kNan, INFINITY, 0.25F};
  clip_grad_value(std::vector<Parameter>{{"h", std::span<Half>{halves}, std::span<Half>{halves}},
                                         {"f", std::span<float>{floats}, std::span<float>{floats}}},
                  1);
  CHECK(static_cast<float>(halves[0]) == -1);
  CHECK(static_cast<float>(halves[1]) == 0.5F);
  CHECK(static_cast<float>(halves[2]) == 1);
  CHECK(floats[0] == -1);
  CHECK(std::isnan(floats[2]));
  CHECK(floats[3] == 1);
  CHECK(floats[4] == 0.25F);
}
