#include "runtime/training/device_gradients.hpp"

#include "runtime/device/kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace acc::runtime::training {
namespace {

namespace body = device::body;

/// work(range's number, piece) for each in device memory.
template <class Work>
void on_devices(const Gradients& gradients, const Work& work) {
  for (std::size_t i = 0; i < gradients.ranges.size(); ++i) {
    const TensorView piece = gradients.piece(gradients.ranges[i]);
    if (in_device_memory(piece)) work(i, piece);
  }
}

/// Findings of each device that there are gradients on, mostly one.
class FindingsByDevice {
 public:
  FindingsByDevice(std::size_t words, void* stream) : words_{words}, stream_{stream} {}
  body::Word* of(const Device& device) {
    auto& found = all_[device.index];
    if (!found) found = std::make_unique<device::Findings>(device.index, words_, stream_);
    return found->words();
  }
  template <class Work>
  void read(const Work& work) const {
    for (const auto& [device, found] : all_) work(device, found->read());
  }

 private:
  std::size_t words_;
  void* stream_;
  std::map<int, std::unique_ptr<device::Findings>> all_;
};

double magnitude(std::uint64_t bits, DType type) {
  if (type == DType::f64) return std::bit_cast<double>(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
}

}  // namespace

bool in_device_memory(const TensorView& piece) noexcept {
  return piece.device.kind == Device::Kind::cuda;
}

void require_kernels_for(const Gradients& gradients, std::string_view what) {
  const bool any = std::ranges::any_of(
      gradients.parameters, [](const Parameter& p) { return in_device_memory(p.gradient); });
  if (any) device::require_kernels(what);
}

bool scale_on_devices(const Gradients& gradients, double factor) {
  FindingsByDevice found{1, gradients.stream};
  on_devices(gradients, [&](std::size_t, const TensorView& piece) {
    device::scale(piece, factor, found.of(piece.device), gradients.stream);
  });
  bool finite = true;
  found.read([&](int, const std::vector<std::uint64_t>& words) { finite &= words[0] == 0; });
  return finite;
}

void clamp_on_devices(const Gradients& gradients, double limit) {
  on_devices(gradients, [&](std::size_t, const TensorView& piece) {
    device::clamp(piece, limit, gradients.stream);
  });
}

std::vector<double> largest_on_devices(const Gradients& gradients) {
  constexpr std::size_t kTogether = 4096;  // ranges whose findings are read at once
  std::vector<double> largest(gradients.ranges.size(), 0);
  for (std::size_t first = 0; first < largest.size(); first += kTogether) {
    const std::size_t some = std::min(kTogether, largest.size() - first);
    FindingsByDevice found{some, gradients.stream};
    std::vector<std::pair<int, DType>> where(some, {-1, DType::f32});
    on_devices(gradients, [&](std::size_t i, const TensorView& piece) {
      if (i < first || i >= first + some) return;
      where[i - first] = {piece.device.index, piece.dtype};
      device::largest(piece, found.of(piece.device) + (i - first), gradients.stream);
    });
    found.read([&](int device, const std::vector<std::uint64_t>& words) {
      for (std::size_t i = 0; i < some; ++i)
        if (where[i].first == device) largest[first + i] = magnitude(words[i], where[i].second);
    });
  }
  return largest;
}

void add_squares_on_devices(const Gradients& gradients, ExactSquares& squares) {
  FindingsByDevice floats{body::kSquareWords, gradients.stream};
  FindingsByDevice doubles{body::kDoubleSquareWords, gradients.stream};
  on_devices(gradients, [&](std::size_t, const TensorView& piece) {
    auto& found = piece.dtype == DType::f64 ? doubles : floats;
    device::squares(piece, found.of(piece.device), gradients.stream);
  });
  floats.read([&](int, const auto& words) { squares.add_float_sums(words); });
  doubles.read([&](int, const auto& words) { squares.add_double_sums(words); });
}

}  // namespace acc::runtime::training
