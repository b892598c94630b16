#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// A small convolutional network in plain C++: two convolutions of 3 x 3 with ReLU and 2 x 2
/// max-pooling, and a fully connected layer. Its numbers lie "lane last": kLanes images side by
/// side in the innermost dimension, so that every loop over it becomes vector instructions and no
/// image needs to know of another.
namespace example {

inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kSide = 28;
inline constexpr std::size_t kPixels = kSide * kSide;
inline constexpr std::size_t kHalf = kSide / 2;  // the side after the first pooling
inline constexpr std::size_t kTaps = 9;          // of a 3 x 3 window
inline constexpr std::size_t kClasses = 10;
inline constexpr std::size_t kFirst = 8;    // channels after the first convolution
inline constexpr std::size_t kSecond = 16;  // and after the second
inline constexpr std::size_t kFeatures = kSecond * (kSide / 4) * (kSide / 4);

struct Image {
  std::array<std::uint8_t, kPixels> pixels;
  std::uint8_t label;
};

/// A pixel as the net sees it: mean and deviation are those of the training images.
constexpr float normalised(std::uint8_t pixel) {
  return (static_cast<float>(pixel) / 255 - 0.286F) / 0.353F;
}

/// A part of the parameters: where it lies and what it is called in a checkpoint.
struct Part {
  const char* name;
  std::size_t first, count;
  std::vector<std::int64_t> shape;
};

enum : std::size_t {
  kConv1W,
  kConv1B,
  kConv2W,
  kConv2B,
  kFullW,
  kFullB
};  // the order of Net::parts()

class Net {
 public:
  Net();
  /// As PyTorch initialises such layers; the same seed gives the same network on every rank.
  void initialise(std::uint64_t seed);

  /// Adds the gradient of the summed loss of these images, times `weight`, to gradient(). @return
  /// that sum, as it is.
  double learn(std::span<const Image> images, double weight = 1);
  /// @return how many of these images are recognised.
  std::size_t recognised(std::span<const Image> images);

  [[nodiscard]] std::span<float> parameters() { return parameters_; }
  /// Where learn() adds; the caller zeroes it. Another place may be given, of parameters().size().
  [[nodiscard]] std::span<float> gradient() { return gradient_; }
  void put_gradient(std::span<float> elsewhere) { gradient_ = elsewhere; }
  /// Weights and biases layer by layer; they cover parameters() without a gap.
  [[nodiscard]] static const std::vector<Part>& parts();

 private:
  template <std::size_t N>
  using Lanes = std::array<std::array<float, kLanes>, N>;

  // Convolutions read a frame of zeros around the image.
  struct Activations {
    Lanes<(kSide + 2) * (kSide + 2)> input;
    Lanes<kFirst * kSide * kSide> first;
    Lanes<kFirst*(kSide / 2 + 2) * (kSide / 2 + 2)> first_pooled;
    Lanes<kSecond*(kSide / 2) * (kSide / 2)> second;
    Lanes<kFeatures> features;
    Lanes<kClasses> scores;
  };

  void load(std::span<const Image> images);
  void forward();
  double loss(std::span<const Image> images,
              float weight);  // leaves its gradient in memory_[1].scores
  void backward();

  std::vector<float> parameters_;
  std::vector<float> own_gradient_;
  std::span<float> gradient_;
  std::vector<Activations> memory_;  // [0]: values; [1]: gradients
};

}  // namespace example
