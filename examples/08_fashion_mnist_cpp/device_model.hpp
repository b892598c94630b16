#pragma once

#include <acc/cuda.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "cublas.hpp"
#include "layers.hpp"
#include "model.hpp"

namespace example {

/// Floats in device memory.
class Floats {
 public:
  explicit Floats(std::size_t count) : buffer_{count * sizeof(float)} {}
  operator float*() const { return static_cast<float*>(buffer_.data()); }  // NOLINT: an array

 private:
  acc::cuda::DeviceBuffer buffer_;
};

/// The net in device memory. A Machine's each(count, body) does body(i) for each i below count, in
/// any order, in order with CUDA's default stream; the one of cuda_model.cu launches kernels, loops
/// on the host do for a test.
template <class Machine>
class DeviceModel final : public Model {
 public:
  /// @param together  images that are computed at a time; each takes some 180 KiB
  DeviceModel(Machine machine, const acc::runtime::Device& device, std::uint64_t seed,
              std::size_t together = 512)
      : machine_{std::move(machine)}, device_{device}, together_{together} {
    Net net;  // for its initialisation
    net.initialise(seed);
    acc::cuda::copy(values_, net.parameters().data(), net.parameters().size_bytes());
    machine_.each(net.parameters().size(), layers::Fill{0, gradient_});
    machine_.each(together * kPixels, layers::Fill{1, ones_});
  }

  std::vector<acc::Parameter> parameters() override {
    using acc::runtime::DType;
    using acc::runtime::TensorView;
    std::vector<acc::Parameter> made;
    for (const auto& part : Net::parts())
      made.push_back({part.name, TensorView{values_ + part.first, DType::f32, part.shape, device_},
                      TensorView{gradient_ + part.first, DType::f32, part.shape, device_}});
    return made;
  }

  double learn(std::span<const Image> images, double factor) override {
    const auto weight = static_cast<float>(factor / static_cast<double>(images.size()));
    double total = 0;
    in_chunks(images, [&](std::size_t n) {
      machine_.each(n, layers::Loss{images_on_device(), scores_, value(kFullB), weight, results_,
                                    scores_back_});
      backward(n);
      total += sum_of_results(n);
    });
    return total / static_cast<double>(images.size());
  }

  std::size_t recognised(std::span<const Image> images) override {
    double right = 0;
    in_chunks(images, [&](std::size_t n) {
      machine_.each(n, layers::Recognised{images_on_device(), scores_, value(kFullB), results_});
      right += sum_of_results(n);
    });
    return static_cast<std::size_t>(right);
  }

  std::unique_ptr<acc::Optimizer> make_sgd(acc::GradientReducer& reducer, double learning_rate,
                                           double momentum) override {
    return std::make_unique<Sgd>(machine_, reducer, learning_rate, momentum);
  }

 private:
  /// Its state is that of acc::Sgd, by the same names, so that a checkpoint of one is one of the
  /// other's.
  class Sgd final : public acc::Optimizer {
   public:
    Sgd(const Machine& machine, acc::GradientReducer& reducer, double learning_rate,
        double momentum)
        : Optimizer{reducer,
                    {.learning_rate = learning_rate, .momentum = momentum},
                    {},
                    Reach::device},
          machine_{machine} {}

   private:
    std::vector<std::string_view> kinds() const override { return {"momentum_buffer"}; }
    void update(const Piece& piece) const override {
      machine_.each(piece.count, layers::SgdStep{static_cast<float*>(piece.values),
                                                 static_cast<const float*>(piece.gradient),
                                                 static_cast<float*>(piece.state[0]),
                                                 static_cast<float>(piece.settings.learning_rate),
                                                 static_cast<float>(piece.settings.momentum)});
    }
    Machine machine_;
  };

  using Pool1 = layers::Pool<kFirst, kSide, layers::Order::planes>;
  using Pool2 = layers::Pool<kSecond, kHalf, layers::Order::features>;
  using Pool1Back = layers::PoolBack<kFirst, kSide, layers::Order::planes>;
  using Pool2Back = layers::PoolBack<kSecond, kHalf, layers::Order::features>;
  static constexpr std::size_t kHalfPixels = kHalf * kHalf;

  /// Runs the net over some images at a time, and `then` with the number of them.
  template <class Then>
  void in_chunks(std::span<const Image> images, const Then& then) {
    for (std::size_t first = 0; first < images.size(); first += together_) {
      const auto some = images.subspan(first, std::min(together_, images.size() - first));
      acc::cuda::copy(images_.data(), some.data(), some.size_bytes());
      forward(some.size());
      then(some.size());
    }
  }

  void forward(std::size_t n) {
    machine_.each(n * kPixels, layers::Load{images_on_device(), planes_});
    machine_.each(kTaps * n * kPixels, layers::Windows<kSide>{planes_, n, columns1_});
    cublas_.multiply(weights1(), columns1(n), 0, first_);
    machine_.each(kFirst * n * kHalfPixels, Pool1{first_, value(kConv1B), n, pooled_});
    machine_.each(kFirst * kTaps * n * kHalfPixels, layers::Windows<kHalf>{pooled_, n, columns2_});
    cublas_.multiply(weights2(), columns2(n), 0, second_);
    machine_.each(n * kFeatures, Pool2{second_, value(kConv2B), n, features_});
    cublas_.multiply(features(n), transposed(weights_full()), 0, scores_);
  }

  /// From scores_back_, adding to gradient_.
  void backward(std::size_t n) {
    const Matrix scores_back{scores_back_, n, kClasses};
    cublas_.multiply(transposed(scores_back), features(n), 1, gradient(kFullW));
    cublas_.multiply(transposed(scores_back), ones(n), 1, gradient(kFullB));
    cublas_.multiply(scores_back, weights_full(), 0, features_back_);

    machine_.each(n * kFeatures,
                  Pool2Back{second_, value(kConv2B), features_, features_back_, n, second_back_});
    const Matrix second_back{second_back_, kSecond, n * kHalfPixels};
    cublas_.multiply(second_back, transposed(columns2(n)), 1, gradient(kConv2W));
    cublas_.multiply(second_back, ones(n * kHalfPixels), 1, gradient(kConv2B));
    cublas_.multiply(transposed(weights2()), second_back, 0, columns2_);  // of no other use by now
    machine_.each(kFirst * n * kHalfPixels, layers::WindowsBack<kHalf>{columns2_, n, pooled_back_});

    machine_.each(kFirst * n * kHalfPixels,
                  Pool1Back{first_, value(kConv1B), pooled_, pooled_back_, n, first_back_});
    const Matrix first_back{first_back_, kFirst, n * kPixels};
    cublas_.multiply(first_back, transposed(columns1(n)), 1, gradient(kConv1W));
    cublas_.multiply(first_back, ones(n * kPixels), 1, gradient(kConv1B));
  }

  /// Of losses or counts, one an image. Waits for the device.
  double sum_of_results(std::size_t n) {
    acc::cuda::copy(on_host_.data(), results_, n * sizeof(float));
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(on_host_[i]);
    return sum;
  }

  [[nodiscard]] float* value(std::size_t part) const { return values_ + Net::parts()[part].first; }
  [[nodiscard]] float* gradient(std::size_t part) const {
    return gradient_ + Net::parts()[part].first;
  }
  [[nodiscard]] const Image* images_on_device() const {
    return static_cast<const Image*>(images_.data());
  }
  [[nodiscard]] Matrix weights1() const { return {value(kConv1W), kFirst, kTaps}; }
  [[nodiscard]] Matrix weights2() const { return {value(kConv2W), kSecond, kFirst * kTaps}; }
  [[nodiscard]] Matrix weights_full() const { return {value(kFullW), kClasses, kFeatures}; }
  [[nodiscard]] Matrix columns1(std::size_t n) const { return {columns1_, kTaps, n * kPixels}; }
  [[nodiscard]] Matrix columns2(std::size_t n) const {
    return {columns2_, kFirst * kTaps, n * kHalfPixels};
  }
  [[nodiscard]] Matrix features(std::size_t n) const { return {features_, n, kFeatures}; }
  [[nodiscard]] Matrix ones(std::size_t count) const { return {ones_, count, 1}; }

  Machine machine_;
  const Cublas cublas_;
  const acc::runtime::Device device_;
  const std::size_t together_;
  const std::size_t count_ = Net::parts().back().first + Net::parts().back().count;
  const Floats values_{count_}, gradient_{count_};
  const acc::cuda::DeviceBuffer images_{together_ * sizeof(Image)};
  const Floats planes_{together_ * kPixels}, columns1_{together_ * kPixels * kTaps};
  const Floats first_{together_ * kPixels * kFirst}, first_back_{together_ * kPixels * kFirst};
  const Floats pooled_{together_ * kHalfPixels * kFirst};
  const Floats pooled_back_{together_ * kHalfPixels * kFirst};
  const Floats columns2_{together_ * kHalfPixels * kFirst * kTaps};
  const Floats second_{together_ * kHalfPixels * kSecond};
  const Floats second_back_{together_ * kHalfPixels * kSecond};
  const Floats features_{together_ * kFeatures}, features_back_{together_ * kFeatures};
  const Floats scores_{together_ * kClasses}, scores_back_{together_ * kClasses};
  const Floats results_{together_}, ones_{together_ * kPixels};
  std::vector<float> on_host_ = std::vector<float>(together_);
};

}  // namespace example
