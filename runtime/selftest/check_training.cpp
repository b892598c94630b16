#include "runtime/selftest/checks.hpp"

#include <acc/gradient_reducer.hpp>
#include <acc/optimizer.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace acc::selftest {

using namespace runtime;

namespace {

constexpr std::size_t kInputs = 257;  // not divisible by ranks or vectors
constexpr std::size_t kOutputs = 3;
constexpr std::size_t kSteps = 20;
constexpr std::size_t kPerRank = 4;  // samples of a rank in a step

double noise(std::size_t n) {
  auto bits = n * 0x9E3779B97F4A7C15ULL;
  bits = (bits ^ (bits >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return static_cast<double>((bits ^ (bits >> 32)) & 0xFFFF) / 65536 - 0.5;
}

/// A linear model, trained on made-up samples to give what another linear model gives.
class Model {
 public:
  Model() : weights_(kInputs * kOutputs), bias_(kOutputs) {
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = static_cast<float>(noise(i + 1) * 0.1);
  }

  [[nodiscard]] std::vector<Parameter> parameters() {
    return {{"weights",
             {std::span<float>{weights_},
              {static_cast<std::int64_t>(kOutputs), static_cast<std::int64_t>(kInputs)}},
             {}},
            {"bias", {std::span<float>{bias_}}, {}}};
  }

  /// Adds the gradient of the mean loss of these samples.
  void learn(std::size_t first, std::size_t count, float* weights_back, float* bias_back) const {
    for (std::size_t sample = first; sample < first + count; ++sample)
      for (std::size_t o = 0; o < kOutputs; ++o) {
        double error = bias_[o] - static_cast<double>(o);
        for (std::size_t i = 0; i < kInputs; ++i)
          error += (weights_[o * kInputs + i] - noise(i * 31 + o)) * input(sample, i);
        const auto scale = static_cast<float>(error / static_cast<double>(count));
        bias_back[o] += scale;
        for (std::size_t i = 0; i < kInputs; ++i)
          weights_back[o * kInputs + i] += scale * static_cast<float>(input(sample, i));
      }
  }

  [[nodiscard]] const std::vector<float>& weights() const { return weights_; }

 private:
  static double input(std::size_t sample, std::size_t i) { return noise(sample * 1009 + i) * 0.2; }
  std::vector<float> weights_, bias_;
};

/// Trains with `parts` parts of each global batch; this group's ranks take one each.
std::vector<float> train(ProcessGroup group, std::size_t parts, bool sharded) {
  Model model;
  ReducerOptions reducing;
  if (sharded) reducing.mode = GradientMode::reduce_scatter;
  reducing.bucket_bytes = 1024;  // several, so that their order matters
  GradientReducer reducer{group, model.parameters(), reducing};
  AdamWOptions how;
  how.learning_rate = 0.01;
  AdamW optimizer{reducer, how};
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto mine = parts / ranks;
  for (std::size_t step = 0; step < kSteps; ++step) {
    reducer.zero_gradients();
    const auto first = (step * parts + static_cast<std::size_t>(group.rank()) * mine) * kPerRank;
    model.learn(first, mine * kPerRank, static_cast<float*>(reducer.gradient(0).data),
                static_cast<float*>(reducer.gradient(1).data));
    reducer.ready(1);
    reducer.ready(0);
    reducer.finish();
    optimizer.step();
  }
  return model.weights();
}

double greatest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    greatest = std::max(greatest, std::abs(static_cast<double>(a[i]) - b[i]));
  return greatest;
}

bool same_everywhere(ProcessGroup& group, const std::vector<float>& values) {
  const std::string bytes(reinterpret_cast<const char*>(values.data()),
                          values.size() * sizeof(float));
  return group.broadcast_object(bytes, 0) == bytes;
}

}  // namespace

std::string check_training(ProcessGroup& group) {
  const auto parts = static_cast<std::size_t>(group.size());
  const auto alone = train(ProcessGroup::single(), parts, false);
  const auto together = train(group, parts, false);
  const auto sharded = train(group, parts, true);
  if (!same_everywhere(group, together)) throw Failed{"the ranks end with different parameters"};
  if (std::memcmp(together.data(), sharded.data(), together.size() * sizeof(float)) != 0)
    throw Failed{"sharded optimizer state gives other parameters than whole state"};
  // One rank adds up a batch's samples in another order than N do: rounding, nothing more.
  const auto difference = greatest_difference(alone, together);
  if (!(difference < 1e-4))
    throw Failed{"after " + std::to_string(kSteps) + " steps the parameters of " +
                 std::to_string(parts) + " ranks and of one differ by " +
                 std::to_string(difference)};
  char text[160];
  std::snprintf(text, sizeof text,
                "%zu steps of AdamW as of one rank (differs by %.1e), sharded or not", kSteps,
                difference);
  return text;
}

}  // namespace acc::selftest
