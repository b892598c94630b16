#pragma once

#include <acc/parameter.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

/// A net of two layers with tanh and squared error, differentiated by hand: small enough that a
/// test can compute everything once more.
namespace acc::testing {

using runtime::Parameter;

struct Samples {
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> targets;
};

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed, float size = 1) {
  std::mt19937 engine{seed};
  std::vector<float> values(count);
  for (float& value : values) value = size * (static_cast<float>(engine()) / 2147483648.0F - 1.0F);
  return values;
}

inline Samples random_samples(std::size_t count, std::size_t inputs, std::size_t outputs,
                              std::uint32_t seed) {
  Samples samples;
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = static_cast<std::uint32_t>(i);
    samples.inputs.push_back(random_floats(inputs, seed + 2 * n));
    samples.targets.push_back(random_floats(outputs, seed + 2 * n + 1));
  }
  return samples;
}

class ToyNet {
 public:
  static constexpr std::size_t kInputs = 7, kHidden = 33, kOutputs = 3;
  enum Index : std::size_t { w1, b1, w2, b2 };

  explicit ToyNet(std::uint32_t seed) {
    memory_[w1] = random_floats(kHidden * kInputs, seed, 0.5F);
    memory_[b1] = random_floats(kHidden, seed + 1, 0.1F);
    memory_[w2] = random_floats(kOutputs * kHidden, seed + 2, 0.3F);
    memory_[b2] = random_floats(kOutputs, seed + 3, 0.1F);
  }
  ToyNet(const ToyNet&) = delete;
  ToyNet& operator=(const ToyNet&) = delete;

  /// Without memory for gradients.
  std::vector<Parameter> parameters() {
    const auto view = [&](Index at, runtime::Shape shape) {
      return runtime::TensorView{std::span<float>{memory_[at]}, std::move(shape)};
    };
    return {{"w1", view(w1, {kHidden, kInputs}), {}},
            {"b1", view(b1, {kHidden}), {}},
            {"w2", view(w2, {kOutputs, kHidden}), {}},
            {"b2", view(b2, {kOutputs}), {}}};
  }

  [[nodiscard]] std::vector<float> all_values() const {
    std::vector<float> all;
    for (const auto& values : memory_) all.insert(all.end(), values.begin(), values.end());
    return all;
  }

  /// Adds the gradient of the mean error over samples [begin, end) divided by `over` to the
  /// gradients, one parameter at a time from the last to the first; `ready` is called for each.
  /// @return that error
  float backward(const Samples& samples, std::size_t begin, std::size_t end,
                 const std::function<float*(std::size_t)>& gradient,
                 const std::function<void(std::size_t)>& ready, std::size_t over = 1) const {
    const std::size_t count = end - begin;
    const float weight = 1.0F / static_cast<float>(count * over);
    std::vector<float> hidden(count * kHidden), error(count * kOutputs);
    float sum = 0;
    for (std::size_t s = 0; s < count; ++s) {
      const auto& x = samples.inputs[begin + s];
      const auto& y = samples.targets[begin + s];
      for (std::size_t h = 0; h < kHidden; ++h) {
        float a = memory_[b1][h];
        for (std::size_t i = 0; i < kInputs; ++i) a += memory_[w1][h * kInputs + i] * x[i];
        hidden[s * kHidden + h] = std::tanh(a);
      }
      for (std::size_t o = 0; o < kOutputs; ++o) {
        float a = memory_[b2][o];
        for (std::size_t h = 0; h < kHidden; ++h)
          a += memory_[w2][o * kHidden + h] * hidden[s * kHidden + h];
        error[s * kOutputs + o] = a - y[o];
        sum += 0.5F * (a - y[o]) * (a - y[o]);
      }
    }
    // A parameter's gradient is computed by itself and then added, as an autograd does it.
    std::vector<float> g;
    const auto add = [&](Index at) {
      float* into = gradient(at);
      for (std::size_t i = 0; i < g.size(); ++i) into[i] += g[i];
      ready(at);
    };
    g.assign(kOutputs, 0);
    for (std::size_t s = 0; s < count; ++s)
      for (std::size_t o = 0; o < kOutputs; ++o) g[o] += weight * error[s * kOutputs + o];
    add(b2);
    g.assign(kOutputs * kHidden, 0);
    for (std::size_t s = 0; s < count; ++s)
      for (std::size_t o = 0; o < kOutputs; ++o)
        for (std::size_t h = 0; h < kHidden; ++h)
          g[o * kHidden + h] += weight * error[s * kOutputs + o] * hidden[s * kHidden + h];
    add(w2);
    std::vector<float> back(count * kHidden);
    for (std::size_t s = 0; s < count; ++s) {
      for (std::size_t h = 0; h < kHidden; ++h) {
        float a = 0;
        for (std::size_t o = 0; o < kOutputs; ++o)
          a += error[s * kOutputs + o] * memory_[w2][o * kHidden + h];
        const float t = hidden[s * kHidden + h];
        back[s * kHidden + h] = a * (1 - t * t);
      }
    }
    g.assign(kHidden, 0);
    for (std::size_t s = 0; s < count; ++s)
      for (std::size_t h = 0; h < kHidden; ++h) g[h] += weight * back[s * kHidden + h];
    add(b1);
    g.assign(kHidden * kInputs, 0);
    for (std::size_t s = 0; s < count; ++s)
      for (std::size_t h = 0; h < kHidden; ++h)
        for (std::size_t i = 0; i < kInputs; ++i)
          g[h * kInputs + i] += weight * back[s * kHidden + h] * samples.inputs[begin + s][i];
    add(w1);
    return sum * weight;
  }

 private:
  std::vector<float> memory_[4];
};

}  // namespace acc::testing
