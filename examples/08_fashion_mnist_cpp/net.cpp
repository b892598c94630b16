#include "net.hpp"

#include <algorithm>
#include <cmath>
#include <random>

// The hot loops are compiled for several processors, the best one is taken at the start.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

namespace example {
namespace {

using Lane = std::array<float, kLanes>;

std::size_t at(std::size_t part) { return Net::parts()[part].first; }

/// out[channel][y][x] = bias + sum of 3 x 3 windows over `in`, whose planes are framed by zeros.
/// Four output channels at once: each value read serves four multiplications.
template <std::size_t kIn, std::size_t kOut, std::size_t kEdge>
FAST void convolve(const Lane* in, const float* weights, const float* bias, Lane* out) {
  constexpr std::size_t kFramed = kEdge + 2;
  constexpr std::size_t kTogether = 4;
  for (std::size_t o = 0; o < kOut; o += kTogether)
    for (std::size_t y = 0; y < kEdge; ++y)
      for (std::size_t x = 0; x < kEdge; ++x) {
        float sum[kTogether][kLanes];
        for (std::size_t t = 0; t < kTogether; ++t)
          for (std::size_t l = 0; l < kLanes; ++l) sum[t][l] = bias[o + t];
        for (std::size_t i = 0; i < kIn; ++i)
          for (std::size_t tap = 0; tap < kTaps; ++tap) {
            const float* value = in[(i * kFramed + y + tap / 3) * kFramed + x + tap % 3].data();
            for (std::size_t t = 0; t < kTogether; ++t) {
              const float weight = weights[((o + t) * kIn + i) * kTaps + tap];
              for (std::size_t l = 0; l < kLanes; ++l) sum[t][l] += weight * value[l];
            }
          }
        for (std::size_t t = 0; t < kTogether; ++t)
          for (std::size_t l = 0; l < kLanes; ++l)
            out[((o + t) * kEdge + y) * kEdge + x][l] = sum[t][l];
      }
}

/// The gradients of convolve: of its weights and biases (added), and of its input if `in_back` is
/// given (added).
template <std::size_t kIn, std::size_t kOut, std::size_t kEdge>
FAST void convolve_back(const Lane* in, const float* weights, const Lane* out_back,
                        float* weights_back, float* bias_back, Lane* in_back) {
  constexpr std::size_t kFramed = kEdge + 2;
  for (std::size_t o = 0; o < kOut; ++o) {
    float bias_sum[kLanes] = {};
    for (std::size_t p = 0; p < kEdge * kEdge; ++p)
      for (std::size_t l = 0; l < kLanes; ++l) bias_sum[l] += out_back[o * kEdge * kEdge + p][l];
    for (float value : bias_sum) bias_back[o] += value;

    for (std::size_t i = 0; i < kIn; ++i) {
      float sum[kTaps][kLanes] = {};
      const float* window = weights + (o * kIn + i) * kTaps;
      for (std::size_t y = 0; y < kEdge; ++y)
        for (std::size_t x = 0; x < kEdge; ++x) {
          const float* back = out_back[(o * kEdge + y) * kEdge + x].data();
          for (std::size_t tap = 0; tap < kTaps; ++tap) {
            const std::size_t place = (i * kFramed + y + tap / 3) * kFramed + x + tap % 3;
            for (std::size_t l = 0; l < kLanes; ++l) sum[tap][l] += back[l] * in[place][l];
          }
          if (in_back == nullptr) continue;
          for (std::size_t tap = 0; tap < kTaps; ++tap) {
            float* to = in_back[(i * kFramed + y + tap / 3) * kFramed + x + tap % 3].data();
            for (std::size_t l = 0; l < kLanes; ++l) to[l] += back[l] * window[tap];
          }
        }
      for (std::size_t tap = 0; tap < kTaps; ++tap)
        for (float value : sum[tap]) weights_back[(o * kIn + i) * kTaps + tap] += value;
    }
  }
}

/// ReLU and 2 x 2 max-pooling in one: the greatest of four and of 0. `kFrame`: zeros around each
/// plane of `out`.
template <std::size_t kChannels, std::size_t kEdge, std::size_t kFrame>
FAST void pool(const Lane* in, Lane* out) {
  constexpr std::size_t kOutEdge = kEdge / 2, kPitch = kOutEdge + 2 * kFrame;
  for (std::size_t c = 0; c < kChannels; ++c)
    for (std::size_t y = 0; y < kOutEdge; ++y)
      for (std::size_t x = 0; x < kOutEdge; ++x) {
        const Lane* four = in + (c * kEdge + 2 * y) * kEdge + 2 * x;
        Lane& to = out[(c * kPitch + y + kFrame) * kPitch + x + kFrame];
        for (std::size_t l = 0; l < kLanes; ++l)
          to[l] = std::max({0.0F, four[0][l], four[1][l], four[kEdge][l], four[kEdge + 1][l]});
      }
}

/// The gradient goes to the value that was the greatest, if it was above 0. Of equal ones the first
/// gets it.
template <std::size_t kChannels, std::size_t kEdge, std::size_t kFrame>
FAST void pool_back(const Lane* in, const Lane* out, const Lane* out_back, Lane* in_back) {
  constexpr std::size_t kOutEdge = kEdge / 2, kPitch = kOutEdge + 2 * kFrame;
  for (std::size_t c = 0; c < kChannels; ++c)
    for (std::size_t y = 0; y < kOutEdge; ++y)
      for (std::size_t x = 0; x < kOutEdge; ++x) {
        const std::size_t from = (c * kEdge + 2 * y) * kEdge + 2 * x;
        const std::size_t place = (c * kPitch + y + kFrame) * kPitch + x + kFrame;
        float left[kLanes];
        for (std::size_t l = 0; l < kLanes; ++l)
          left[l] = out[place][l] > 0 ? out_back[place][l] : 0;
        for (const std::size_t step : {std::size_t{0}, std::size_t{1}, kEdge, kEdge + 1})
          for (std::size_t l = 0; l < kLanes; ++l) {
            const float mine = in[from + step][l] == out[place][l] ? left[l] : 0;
            in_back[from + step][l] = mine;
            left[l] -= mine;
          }
      }
}

FAST void connect(const Lane* in, const float* weights, const float* bias, Lane* out) {
  for (std::size_t o = 0; o < kClasses; ++o) {
    float sum[kLanes];
    std::fill_n(sum, kLanes, bias[o]);
    for (std::size_t i = 0; i < kFeatures; ++i)
      for (std::size_t l = 0; l < kLanes; ++l) sum[l] += weights[o * kFeatures + i] * in[i][l];
    std::copy_n(sum, kLanes, out[o].data());
  }
}

FAST void connect_back(const Lane* in, const float* weights, const Lane* out_back,
                       float* weights_back, float* bias_back, Lane* in_back) {
  for (std::size_t o = 0; o < kClasses; ++o)
    for (float value : out_back[o]) bias_back[o] += value;
  for (std::size_t i = 0; i < kFeatures; ++i) {
    float back[kLanes] = {};
    for (std::size_t o = 0; o < kClasses; ++o) {
      float sum = 0;
      for (std::size_t l = 0; l < kLanes; ++l) {
        sum += out_back[o][l] * in[i][l];
        back[l] += out_back[o][l] * weights[o * kFeatures + i];
      }
      weights_back[o * kFeatures + i] += sum;
    }
    std::copy_n(back, kLanes, in_back[i].data());
  }
}

}  // namespace

const std::vector<Part>& Net::parts() {
  static const std::vector<Part> kParts = [] {
    std::vector<Part> parts{
        {"conv1.weight", 0, 0, {kFirst, 1, 3, 3}},       {"conv1.bias", 0, 0, {kFirst}},
        {"conv2.weight", 0, 0, {kSecond, kFirst, 3, 3}}, {"conv2.bias", 0, 0, {kSecond}},
        {"full.weight", 0, 0, {kClasses, kFeatures}},    {"full.bias", 0, 0, {kClasses}}};
    std::size_t first = 0;
    for (auto& part : parts) {
      part.first = first;
      part.count = 1;
      for (const auto extent : part.shape) part.count *= static_cast<std::size_t>(extent);
      first += part.count;
    }
    return parts;
  }();
  return kParts;
}

Net::Net() : memory_(2) {
  const auto count = parts().back().first + parts().back().count;
  parameters_.resize(count);
  own_gradient_.resize(count);
  gradient_ = own_gradient_;
}

void Net::initialise(std::uint64_t seed) {
  std::mt19937_64 random{seed};
  std::size_t inputs = 1;  // of one output; a layer's bias follows its weights
  for (const auto& part : parts()) {
    if (part.shape.size() > 1) inputs = part.count / static_cast<std::size_t>(part.shape[0]);
    const double limit = 1 / std::sqrt(static_cast<double>(inputs));
    for (std::size_t i = 0; i < part.count; ++i) {
      // By hand, as std::uniform_real_distribution differs between libraries.
      const double uniform = static_cast<double>(random() >> 11) / 9007199254740992.0;
      parameters_[part.first + i] = static_cast<float>(limit * (2 * uniform - 1));
    }
  }
}

void Net::load(std::span<const Image> images) {
  constexpr std::size_t kFramed = kSide + 2;
  for (std::size_t y = 0; y < kSide; ++y)
    for (std::size_t x = 0; x < kSide; ++x)
      for (std::size_t l = 0; l < kLanes; ++l) {
        // An unused lane is an empty image and gets no gradient.
        const std::uint8_t pixel = l < images.size() ? images[l].pixels[y * kSide + x] : 0;
        memory_[0].input[(y + 1) * kFramed + x + 1][l] = normalised(pixel);
      }
}

void Net::forward() {
  auto& v = memory_[0];
  const float* p = parameters_.data();
  convolve<1, kFirst, kSide>(v.input.data(), p + at(kConv1W), p + at(kConv1B), v.first.data());
  pool<kFirst, kSide, 1>(v.first.data(), v.first_pooled.data());
  convolve<kFirst, kSecond, kHalf>(v.first_pooled.data(), p + at(kConv2W), p + at(kConv2B),
                                   v.second.data());
  pool<kSecond, kHalf, 0>(v.second.data(), v.features.data());
  connect(v.features.data(), p + at(kFullW), p + at(kFullB), v.scores.data());
}

double Net::loss(std::span<const Image> images, float weight) {
  auto& scores = memory_[0].scores;
  auto& back = memory_[1].scores;
  double total = 0;
  for (std::size_t l = 0; l < kLanes; ++l) {
    float greatest = scores[0][l], sum = 0;
    for (std::size_t c = 1; c < kClasses; ++c) greatest = std::max(greatest, scores[c][l]);
    for (std::size_t c = 0; c < kClasses; ++c) sum += std::exp(scores[c][l] - greatest);
    for (std::size_t c = 0; c < kClasses; ++c) {
      const float share = std::exp(scores[c][l] - greatest) / sum;
      back[c][l] = l >= images.size() ? 0 : weight * (share - (images[l].label == c ? 1.0F : 0.0F));
    }
    if (l < images.size()) total += std::log(sum) - (scores[images[l].label][l] - greatest);
  }
  return total;
}

void Net::backward() {
  const auto& v = memory_[0];
  auto& b = memory_[1];
  const float* p = parameters_.data();
  float* g = gradient_.data();
  connect_back(v.features.data(), p + at(kFullW), b.scores.data(), g + at(kFullW), g + at(kFullB),
               b.features.data());
  pool_back<kSecond, kHalf, 0>(v.second.data(), v.features.data(), b.features.data(),
                               b.second.data());
  b.first_pooled = {};
  convolve_back<kFirst, kSecond, kHalf>(v.first_pooled.data(), p + at(kConv2W), b.second.data(),
                                        g + at(kConv2W), g + at(kConv2B), b.first_pooled.data());
  pool_back<kFirst, kSide, 1>(v.first.data(), v.first_pooled.data(), b.first_pooled.data(),
                              b.first.data());
  convolve_back<1, kFirst, kSide>(v.input.data(), p + at(kConv1W), b.first.data(), g + at(kConv1W),
                                  g + at(kConv1B), nullptr);
}

double Net::learn(std::span<const Image> images, double weight) {
  double total = 0;
  for (std::size_t first = 0; first < images.size(); first += kLanes) {
    const auto some = images.subspan(first, std::min(kLanes, images.size() - first));
    load(some);
    forward();
    total += loss(some, static_cast<float>(weight));
    backward();
  }
  return total;
}

std::size_t Net::recognised(std::span<const Image> images) {
  std::size_t right = 0;
  for (std::size_t first = 0; first < images.size(); first += kLanes) {
    const auto some = images.subspan(first, std::min(kLanes, images.size() - first));
    load(some);
    forward();
    for (std::size_t l = 0; l < some.size(); ++l) {
      std::size_t best = 0;
      for (std::size_t c = 1; c < kClasses; ++c)
        if (memory_[0].scores[c][l] > memory_[0].scores[best][l]) best = c;
      right += some[l].label == best ? 1 : 0;
    }
  }
  return right;
}

}  // namespace example
