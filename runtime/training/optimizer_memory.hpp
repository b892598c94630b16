#pragma once

#include <acc/cuda.hpp>
#include <acc/optimizer.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

/// The tensors of an optimizer's state, each where its parameter is, zeroed, in one piece of
/// memory; a master copy of 16-bit parameters behind the optimizer's own kinds.
struct Optimizer::Memory {
 public:
  static constexpr std::string_view kMaster = "master";

  [[nodiscard]] bool made() const noexcept { return made_; }
  void make(std::span<const Parameter> parameters, std::span<const GradientRange> ranges,
            const std::vector<std::string_view>& kinds, void* stream);
  /// Master copies, of the values as they are when the work on the stream is done.
  void take_masters(std::span<const Parameter> parameters, std::span<const GradientRange> ranges,
                    void* stream);
  /// By kind.
  [[nodiscard]] const std::vector<void*>& of_range(std::size_t range) const {
    return pieces_[range];
  }
  /// Room for so many floats on the device of the state, for gradients of 16 bits.
  [[nodiscard]] float* floats(std::size_t count);

  /// Elements of state: floats, but doubles for doubles.
  [[nodiscard]] static DType type_of(const Parameter& parameter) noexcept;
  [[nodiscard]] static bool has_master(const Parameter& parameter) noexcept;
  /// Tensors of state that a parameter has, for an optimizer with so many kinds of its own.
  [[nodiscard]] static std::size_t tensors_of(const Parameter& parameter,
                                              std::size_t kinds) noexcept;

  double scale = 1;  ///< by which f16 gradients are to be divided; during a step

 private:
  std::byte* make_device_arena(std::size_t bytes);

  bool made_ = false;
  std::vector<std::byte> arena_;
  cuda::DeviceBuffer device_arena_;
  cuda::DeviceBuffer floats_;
  std::vector<std::vector<void*>> pieces_;
};

}  // namespace acc::runtime
