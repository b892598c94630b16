#pragma once

#include "runtime/device/bodies.hpp"

#include <acc/cuda.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The kernels of the training API. Each function enqueues kernels on `stream` (nullptr: the legacy
/// one) of the tensor's device and returns; the tensor is of a floating type.
/// @throws Error cuda from all: no kernels in this build, no driver, one that is too old for them
namespace acc::runtime::device {

/// One line with the remedy; empty: this build has kernels. It doesn't look for a device.
[[nodiscard]] std::string why_no_kernels();
/// @throws Error cuda with that line. @param what  "AdamW": what needs them
void require_kernels(std::string_view what);

/// Zeroed 64-bit numbers in device memory, for results of kernels. Pooled, so that a step allocates
/// nothing.
class Findings {
 public:
  Findings(int device, std::size_t words, void* stream);
  ~Findings();
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;

  [[nodiscard]] body::Word* words() const noexcept;
  /// Waits for the stream.
  [[nodiscard]] std::vector<std::uint64_t> read() const;

 private:
  int device_;
  std::size_t count_;
  void* stream_;
  acc::cuda::DeviceBuffer memory_;
};

/// values *= factor; *bad becomes 1 if one was infinite or NaN before. Null: nobody asks.
void scale(const TensorView& values, double factor, body::Word* bad, void* stream);
void clamp(const TensorView& values, double limit, void* stream);
/// See body::Largest; of f64 the bits are those of a double, else of a float.
void largest(const ConstTensorView& values, body::Word* found, void* stream);
/// See body::Squares: kSquareWords of them, of f64 kDoubleSquareWords.
void squares(const ConstTensorView& values, body::Word* words, void* stream);

/// f16 or bf16 at `from`, floats at `to`, or the other way round.
void widen(const void* from, DType from_type, float* to, std::size_t count, const Device& device,
           void* stream);
void narrow(const float* from, void* to, DType to_type, std::size_t count, const Device& device,
            void* stream);

template <class T>
void sgd(const body::Sgd<T>& step, const Device& device, void* stream);
template <class T>
void adamw(const body::AdamW<T>& step, const Device& device, void* stream);

}  // namespace acc::runtime::device
