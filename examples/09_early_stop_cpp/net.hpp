#pragma once

#include <acc/parameter.hpp>
#include <acc/random.hpp>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace example {

inline constexpr std::size_t kInputs = 8;

/// Is it of the first kind or the second?
struct Point {
  std::array<float, kInputs> at{};
  bool second = false;
};

/// Only two of the inputs decide, by their distance from the origin; every tenth point is labelled
/// at random. A net that memorizes the other inputs gets worse on points that it hasn't seen.
inline std::vector<Point> make_points(std::size_t count, std::uint64_t seed) {
  acc::runtime::Generator random{seed};
  std::vector<Point> points(count);
  for (Point& point : points) {
    for (float& value : point.at) value = static_cast<float>(random.uniform() * 2 - 1);
    point.second = point.at[0] * point.at[0] + point.at[1] * point.at[1] > 0.6F;
    if (random.uniform() < 0.1) point.second = random.uniform() < 0.5;
  }
  return points;
}

/// One hidden layer with tanh, one output: how sure it is of the second kind.
class Net {
 public:
  explicit Net(std::uint64_t seed) {
    acc::runtime::Generator random{seed};
    for (float& weight : into_) weight = spread(random, 1 / std::sqrt(double{kInputs}));
    for (float& weight : out_) weight = spread(random, 1 / std::sqrt(double{kHidden}));
  }

  std::vector<acc::Parameter> parameters() {
    return {{"into.weight", {into_, {kHidden, kInputs}}, {d_into_, {kHidden, kInputs}}},
            {"into.bias", bias_, d_bias_},
            {"out.weight", out_, d_out_},
            {"out.bias", out_bias_, d_out_bias_}};
  }

  struct Judgement {
    float loss = 0;  ///< cross-entropy
    bool is_right = false;
  };
  Judgement judge(const Point& point) {
    const float score = forward(point);
    const float wrong_way = point.second ? -score : score;
    return {std::max(wrong_way, 0.0F) + std::log1p(std::exp(-std::abs(wrong_way))), wrong_way < 0};
  }

  /// Adds the gradient of `weight` times the loss. @return the loss
  float learn(const Point& point, double weight) {
    const float loss = judge(point).loss;
    const float off = 1 / (1 + std::exp(-score_)) - (point.second ? 1.0F : 0.0F);
    const float d_score = off * static_cast<float>(weight);
    d_out_bias_[0] += d_score;
    for (std::size_t h = 0; h < kHidden; ++h) {
      d_out_[h] += d_score * hidden_[h];
      const float d_hidden = d_score * out_[h] * (1 - hidden_[h] * hidden_[h]);
      d_bias_[h] += d_hidden;
      for (std::size_t i = 0; i < kInputs; ++i) d_into_[h * kInputs + i] += d_hidden * point.at[i];
    }
    return loss;
  }

 private:
  static constexpr std::size_t kHidden = 64;
  template <std::size_t N>
  using Floats = std::array<float, N>;

  static float spread(acc::runtime::Generator& random, double reach) {
    return static_cast<float>((random.uniform() * 2 - 1) * reach);
  }

  float forward(const Point& point) {
    score_ = out_bias_[0];
    for (std::size_t h = 0; h < kHidden; ++h) {
      float sum = bias_[h];
      for (std::size_t i = 0; i < kInputs; ++i) sum += into_[h * kInputs + i] * point.at[i];
      hidden_[h] = std::tanh(sum);
      score_ += out_[h] * hidden_[h];
    }
    return score_;
  }

  Floats<kHidden * kInputs> into_{}, d_into_{};
  Floats<kHidden> bias_{}, d_bias_{}, out_{}, d_out_{}, hidden_{};
  Floats<1> out_bias_{}, d_out_bias_{};
  float score_ = 0;
};

}  // namespace example
