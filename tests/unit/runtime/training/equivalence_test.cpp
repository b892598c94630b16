#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/training/toy_net.hpp"

#include <catch2/catch.hpp>

#include <acc/training.hpp>
#include <algorithm>
#include <cmath>
#include <mutex>

/// Is training on n ranks the same as on one, with the same global batch?
///
/// Bitwise, where the additions are the same ones: one rank that takes the n parts one after the
/// other, adds their gradients up in that order and divides by n does what n ranks do. Where one
/// rank takes the whole batch at once its sums run in another order, and an element of the gradient
/// may be off by the rounding of a sum of b terms: at most 2 b 2^-24 times the sum of their
/// magnitudes.
using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::ToyNet;

namespace {

constexpr std::size_t kBatch = 24;
constexpr std::size_t kSteps = 30;

using Values = std::vector<float>;

struct Job {
  int ranks = 1;
  std::size_t parts = 1;  ///< backwards of each rank for one step
  GradientMode mode = GradientMode::all_reduce;
  bool adam = true;
  double max_norm = 0;  ///< 0: no clipping
  std::size_t bucket_bytes = 600;
};

/// Parameters after training, of every rank.
std::vector<Values> train(const Job& job, std::size_t steps = kSteps) {
  const auto samples = acc::testing::random_samples(kBatch * 4, 7, 3, 9);
  std::mutex mutex;
  std::vector<Values> results;
  on_ranks(job.ranks, [&](ProcessGroup& group) {
    ToyNet net{static_cast<std::uint32_t>(5 + group.rank())};  // rank 0's is taken
    GradientReducer reducer{
        group,
        net.parameters(),
        {.bucket_bytes = job.bucket_bytes, .first_bucket_bytes = 200, .mode = job.mode}};
    std::unique_ptr<Optimizer> optimizer;
    if (job.adam) {
      optimizer = std::make_unique<AdamW>(reducer, AdamWOptions{.learning_rate = 0.01});
    } else {
      optimizer = std::make_unique<Sgd>(
          reducer, SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
    }
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::size_t each = kBatch / (static_cast<std::size_t>(job.ranks) * job.parts);
    for (std::size_t step = 0; step < steps; ++step) {
      optimizer->zero_grad();
      for (std::size_t part = 0; part < job.parts; ++part) {
        // Part after part of the global batch: rank r has those from r * parts on.
        const std::size_t begin = (step % 4) * kBatch + (rank * job.parts + part) * each;
        const auto backward = [&] {
          net.backward(
              samples, begin, begin + each,
              [&](std::size_t at) { return static_cast<float*>(reducer.gradient(at).data); },
              [&](std::size_t at) { reducer.ready(at); }, job.parts);
          reducer.finish();
        };
        if (part + 1 < job.parts) {
          const auto quiet = reducer.no_sync();
          backward();
        } else {
          backward();
        }
      }
      if (job.max_norm > 0) clip_grad_norm(reducer, job.max_norm);
      optimizer->step();
    }
    const std::scoped_lock lock{mutex};
    results.push_back(net.all_values());
  });
  return results;
}

bool all_equal(const std::vector<Values>& results, const Values& expected) {
  return std::ranges::all_of(results, [&](const Values& v) { return v == expected; });
}

double distance(const Values& a, const Values& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

}  // namespace

TEST_CASE("n ranks have the bits of one rank that adds n parts up", "[runtime][training]") {
  for (const bool adam : {false, true}) {
    for (const double max_norm : {0.0, 0.05}) {
      // Powers of two: dividing a part's gradient by n before the sum is exact then, as one rank
      // does it; ranks divide after it.
      for (const int ranks : {2, 4, 8}) {
        const auto parts = static_cast<std::size_t>(ranks);
        const Values one = train({.parts = parts, .adam = adam, .max_norm = max_norm})[0];
        for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
          const auto many =
              train({.ranks = ranks, .mode = mode, .adam = adam, .max_norm = max_norm});
          CHECK(many.size() == parts);
          CHECK(all_equal(many, one));
        }
      }
    }
  }
}

TEST_CASE("ranks and accumulation can be exchanged for each other", "[runtime][training]") {
  const Values one = train({.parts = 4})[0];
  // Two ranks of two parts each add (a + b) + (c + d), which isn't ((a + b) + c) + d: equal to each
  // other, and near to one rank.
  const auto many = train({.ranks = 2, .parts = 2});
  CHECK(all_equal(many, many[0]));
  CHECK(distance(many[0], one) < 1e-3);
}

TEST_CASE("buckets of any size give the same bits", "[runtime][training]") {
  const auto small = train({.ranks = 3, .bucket_bytes = 1});
  CHECK(all_equal(train({.ranks = 3, .bucket_bytes = 1 << 20}), small[0]));
  CHECK(all_equal(train({.ranks = 3, .mode = GradientMode::reduce_scatter}), small[0]));
}

TEST_CASE("one step from the whole batch on one rank is within the bound of reordered sums",
          "[runtime][training]") {
  // SGD without momentum of rate 1 for one step: the difference of the values is that of the
  // gradients. Magnitudes of a term here are below 20, and there are 24.
  const auto gradients = [](int ranks) {
    const auto samples = acc::testing::random_samples(kBatch, 7, 3, 9);
    std::mutex mutex;
    Values gradient;
    on_ranks(ranks, [&](ProcessGroup& group) {
      ToyNet net{5};
      GradientReducer reducer{group, net.parameters()};
      const std::size_t each = kBatch / static_cast<std::size_t>(ranks);
      const std::size_t begin = static_cast<std::size_t>(group.rank()) * each;
      net.backward(
          samples, begin, begin + each,
          [&](std::size_t at) { return static_cast<float*>(reducer.gradient(at).data); },
          [&](std::size_t at) { reducer.ready(at); });
      reducer.finish();
      const std::scoped_lock lock{mutex};
      gradient.clear();
      for (std::size_t i = 0; i < 4; ++i) {
        const auto* at = static_cast<const float*>(reducer.gradient(i).data);
        gradient.insert(gradient.end(), at, at + reducer.gradient(i).count());
      }
    });
    return gradient;
  };
  const Values one = gradients(1);
  double largest = 0;
  for (const float g : one) largest = std::max(largest, std::abs(static_cast<double>(g)));
  REQUIRE(largest > 0.01);
  // The mean of 24 terms: sum of magnitudes / 24 <= 20.
  const double bound = 2.0 * kBatch * 0x1p-24 * 20;
  for (const int ranks : {2, 3, 4, 6, 8}) CHECK(distance(gradients(ranks), one) <= bound);
}

TEST_CASE("a whole training from the whole batch stays near", "[runtime][training]") {
  const Values one = train({.adam = false})[0];
  for (const int ranks : {2, 3, 8})
    CHECK(distance(train({.ranks = ranks, .adam = false})[0], one) < 1e-4);
}
