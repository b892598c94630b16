#pragma once

#include <cmath>
#include <cstddef>

#include "net.hpp"

/// The arithmetic of the net's layers that is not a matrix product, each as a body: what is done
/// for one index of many, with which no other index has to do. A CUDA kernel gives each index to a
/// thread; a plain loop does as well, and that is how it is tested where there is no GPU.
///
/// Planes lie as [channel][image][y][x], so that a convolution is one matrix product over all
/// images: weights [out][in x 9] times columns [in x 9][images x pixels], in which each pixel's
/// 3 x 3 window stands upright.
#ifdef __CUDACC__
#define EXAMPLE_ANYWHERE __host__ __device__
#else
#define EXAMPLE_ANYWHERE
#endif

namespace example::layers {

/// Images as planes of one channel. For each pixel of each image.
struct Load {
  const Image* images;
  float* planes;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    planes[i] = normalised(images[i / kPixels].pixels[i % kPixels]);
  }
};

/// Planes as columns; what lies outside an image is 0. For each element of `columns`.
template <std::size_t kEdge>
struct Windows {
  const float* planes;
  std::size_t images;
  float* columns;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    constexpr std::size_t kArea = kEdge * kEdge;
    const std::size_t pixel = i % kArea, image = i / kArea % images, row = i / kArea / images;
    const std::size_t channel = row / kTaps, tap = row % kTaps;
    // In the plane with a frame of 1 around it.
    const std::size_t y = pixel / kEdge + tap / 3, x = pixel % kEdge + tap % 3;
    const bool inside = y >= 1 && y <= kEdge && x >= 1 && x <= kEdge;
    const float* plane = planes + (channel * images + image) * kArea;
    columns[i] = inside ? plane[(y - 1) * kEdge + x - 1] : 0.0F;
  }
};

/// The way back: a pixel's gradient is the sum over the windows it was in. For each element of
/// `planes`.
template <std::size_t kEdge>
struct WindowsBack {
  const float* columns;
  std::size_t images;
  float* planes;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    constexpr std::size_t kArea = kEdge * kEdge;
    const std::size_t pixel = i % kArea, image = i / kArea % images, channel = i / kArea / images;
    float sum = 0;
    for (std::size_t tap = 0; tap < kTaps; ++tap) {
      // The middle of the window of which this pixel is number `tap`, with the frame.
      const std::size_t y = pixel / kEdge + 2 - tap / 3, x = pixel % kEdge + 2 - tap % 3;
      if (y < 1 || y > kEdge || x < 1 || x > kEdge) continue;
      sum += columns[((channel * kTaps + tap) * images + image) * kArea + (y - 1) * kEdge + x - 1];
    }
    planes[i] = sum;
  }
};

/// Where pooled planes go: as planes for the next convolution, or image by image as features.
enum class Order { planes, features };

/// Of planes of kEdge x kEdge: the four values that become one, and where that one lies.
template <std::size_t kChannels, std::size_t kEdge, Order kOrder>
struct Square {
  static constexpr std::size_t kArea = kEdge * kEdge, kPooled = kArea / 4;

  EXAMPLE_ANYWHERE Square(std::size_t i, std::size_t images) {
    const std::size_t pixel = i % kPooled, image = i / kPooled % images;
    channel = i / kPooled / images;
    from = (channel * images + image) * kArea + pixel / (kEdge / 2) * 2 * kEdge +
           pixel % (kEdge / 2) * 2;
    to = kOrder == Order::planes ? i : (image * kChannels + channel) * kPooled + pixel;
  }
  EXAMPLE_ANYWHERE static std::size_t corner(std::size_t of_four) {
    return of_four / 2 * kEdge + of_four % 2;
  }
  std::size_t channel, from, to;
};

/// Bias, ReLU and 2 x 2 max-pooling in one: the greatest of four and of 0. For each element of
/// `out`.
template <std::size_t kChannels, std::size_t kEdge, Order kOrder>
struct Pool {
  const float* in;
  const float* bias;
  std::size_t images;
  float* out;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    const Square<kChannels, kEdge, kOrder> square{i, images};
    float greatest = 0;
    for (std::size_t four = 0; four < 4; ++four)
      greatest = std::fmax(greatest, in[square.from + square.corner(four)] + bias[square.channel]);
    out[square.to] = greatest;
  }
};

/// The gradient goes to the value that was the greatest, if it was above 0. Of equal ones the first
/// gets it. For each element of `out`.
template <std::size_t kChannels, std::size_t kEdge, Order kOrder>
struct PoolBack {
  const float* in;
  const float* bias;
  const float* out;
  const float* out_back;
  std::size_t images;
  float* in_back;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    const Square<kChannels, kEdge, kOrder> square{i, images};
    const float greatest = out[square.to];
    float left = greatest > 0 ? out_back[square.to] : 0.0F;
    for (std::size_t four = 0; four < 4; ++four) {
      const std::size_t at = square.from + square.corner(four);
      const bool is_it = in[at] + bias[square.channel] == greatest;
      in_back[at] = is_it ? left : 0.0F;
      if (is_it) left = 0;
    }
  }
};

/// Cross-entropy of the scores [image][class], and its gradient times `weight`. For each image.
struct Loss {
  const Image* images;
  const float* scores;
  const float* bias;
  float weight;
  float* loss;
  float* scores_back;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    const float* mine = scores + i * kClasses;
    float* back = scores_back + i * kClasses;
    const std::size_t label = images[i].label;
    float greatest = mine[0] + bias[0], sum = 0;
    for (std::size_t c = 1; c < kClasses; ++c) greatest = std::fmax(greatest, mine[c] + bias[c]);
    for (std::size_t c = 0; c < kClasses; ++c) sum += std::exp(mine[c] + bias[c] - greatest);
    for (std::size_t c = 0; c < kClasses; ++c) {
      const float share = std::exp(mine[c] + bias[c] - greatest) / sum;
      back[c] = weight * (share - (label == c ? 1.0F : 0.0F));
    }
    loss[i] = std::log(sum) - (mine[label] + bias[label] - greatest);
  }
};

/// 1 where the greatest score is that of the label, of equal ones the first. For each image.
struct Recognised {
  const Image* images;
  const float* scores;
  const float* bias;
  float* right;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    const float* mine = scores + i * kClasses;
    std::size_t best = 0;
    for (std::size_t c = 1; c < kClasses; ++c)
      if (mine[c] + bias[c] > mine[best] + bias[best]) best = c;
    right[i] = images[i].label == best ? 1.0F : 0.0F;
  }
};

/// As acc::Sgd. For each element.
struct SgdStep {
  float* values;
  const float* gradient;
  float* buffer;
  float learning_rate, momentum;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const {
    buffer[i] = momentum * buffer[i] + gradient[i];
    values[i] -= learning_rate * buffer[i];
  }
};

struct Fill {
  float value;
  float* to;

  EXAMPLE_ANYWHERE void operator()(std::size_t i) const { to[i] = value; }
};

}  // namespace example::layers
