// What kernels do, by their bodies as loops on the streams of the fakes, against the host's loops.
#include "runtime/device/kernels.hpp"

#include "runtime/training/cast.hpp"
#include "runtime/training/element_kernels.hpp"
#include "runtime/training/exact_squares.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "fakes.hpp"

using namespace acc::runtime;
using acc::testing::Fakes;
using acc::testing::OnDevice;
namespace body = device::body;

namespace {

constexpr DType kFloating[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

/// Of all sizes, with zeros and subnormals among them.
std::vector<std::byte> values_of(DType type, std::size_t count, std::uint32_t seed = 1) {
  std::mt19937 random{seed};
  std::normal_distribution<float> normal;
  std::vector<float> made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = i % 17 == 0 ? 0.0F : std::ldexp(normal(random), static_cast<int>(i % 40) - 30);
  std::vector<std::byte> bytes(count * size_of(type));
  training::from_floats(made.data(), bytes.data(), type, count);
  return bytes;
}

TensorView view_of(const OnDevice& memory, DType type, std::size_t count) {
  return {memory.data(), type, {static_cast<std::int64_t>(count)}, {Device::Kind::cuda, 0}};
}

bool has_kernels() {
  if (device::why_no_kernels().empty()) return true;
  WARN("skipped: " + device::why_no_kernels());
  return false;
}

}  // namespace

TEST_CASE("16-bit floats of kernels are those of the host", "[runtime][device]") {
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    Half h;
    h.bits = half;
    BFloat16 b;
    b.bits = half;
    const float as_half = body::load(device::F16{half});
    const float as_bf16 = body::load(device::B16{half});
    if (std::isnan(float(h)) ? !std::isnan(as_half) : as_half != float(h)) ++wrong;
    if (std::signbit(as_half) != std::signbit(float(h))) ++wrong;
    if (std::isnan(float(b)) ? !std::isnan(as_bf16) : as_bf16 != float(b)) ++wrong;
  }
  std::mt19937 random{3};
  for (int i = 0; i < 2'000'000; ++i) {
    // All patterns, and those near the limits of a half.
    const std::uint32_t pattern =
        i % 2 == 0 ? static_cast<std::uint32_t>(random())
                   : (0x33000000U + static_cast<std::uint32_t>(random()) % 0x14800000U) |
                         (i % 4 == 1 ? 0x80000000U : 0U);
    float value = 0;
    std::memcpy(&value, &pattern, sizeof value);
    device::F16 half{};
    device::B16 brain{};
    body::store(half, value);
    body::store(brain, value);
    if (std::isnan(value)) {
      if (!std::isnan(body::load(half)) || !std::isnan(body::load(brain))) ++wrong;
    } else if (half.bits != Half{value}.bits || brain.bits != BFloat16{value}.bits) {
      ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("gradients are scaled, limited and measured in device memory as on the host",
          "[runtime][device]") {
  if (!has_kernels()) return;
  const Fakes fakes;
  const auto type = GENERATE(from_range(std::begin(kFloating), std::end(kFloating)));
  const std::size_t count = GENERATE(0U, 1U, 255U, 1000U, 300'001U);
  CAPTURE(to_string(type), count);
  const auto first = values_of(type, count);

  auto on_host = first;
  const OnDevice memory{first.data(), first.size()};
  const TensorView view = view_of(memory, type, count);
  device::Findings bad{0, 1, nullptr};
  device::scale(view, 0.3, bad.words(), nullptr);
  CHECK(training::scale(on_host.data(), type, count, 0.3));
  CHECK(bad.read() == std::vector<std::uint64_t>{0});
  CHECK(memory.read() == on_host);

  device::clamp(view, 0.01, nullptr);
  training::clamp(on_host.data(), type, count, 0.01);
  acc::cuda::synchronize();
  CHECK(memory.read() == on_host);

  device::Findings most{0, 1, nullptr};
  device::largest(view, most.words(), nullptr);
  const auto bits = most.read()[0];
  double found = 0;
  if (type == DType::f64) {
    std::memcpy(&found, &bits, sizeof found);
  } else {
    float narrow = 0;
    std::memcpy(&narrow, &bits, sizeof narrow);
    found = narrow;
  }
  CHECK(found == training::largest(on_host.data(), type, count));
}

TEST_CASE("an infinity or NaN in device memory is seen before it is scaled", "[runtime][device]") {
  if (!has_kernels()) return;
  const Fakes fakes;
  const auto type = GENERATE(from_range(std::begin(kFloating), std::end(kFloating)));
  const float what =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> values(3000, 1.0F);
  values[2777] = what;
  std::vector<std::byte> bytes(values.size() * size_of(type));
  training::from_floats(values.data(), bytes.data(), type, values.size());
  const OnDevice memory{bytes.data(), bytes.size()};
  device::Findings bad{0, 1, nullptr};
  device::scale(view_of(memory, type, values.size()), 0.5, bad.words(), nullptr);
  CHECK(bad.read()[0] == 1);
}

TEST_CASE("f16 and bf16 become floats and floats become them in device memory",
          "[runtime][device]") {
  if (!has_kernels()) return;
  const Fakes fakes;
  const auto type = GENERATE(DType::f16, DType::bf16);
  const std::size_t count = 10'001;
  const auto bytes = values_of(type, count);
  const OnDevice narrow{bytes.data(), bytes.size()}, wide{count * sizeof(float)},
      back{bytes.size()};
  const Device device{Device::Kind::cuda, 0};
  device::widen(narrow.data(), type, static_cast<float*>(wide.data()), count, device, nullptr);
  device::narrow(static_cast<const float*>(wide.data()), back.data(), type, count, device, nullptr);
  acc::cuda::synchronize();
  std::vector<float> expected(count);
  training::to_floats(bytes.data(), type, expected.data(), count);
  CHECK(wide.read_as<float>() == expected);
  CHECK(back.read() == bytes);
}

TEST_CASE("an old driver, or a build without the toolkit, is told in one line",
          "[runtime][device]") {
  if (!device::why_no_kernels().empty()) {
    CHECK_THROWS_WITH(
        device::require_kernels("AdamW"),
        Catch::StartsWith("AdamW in device memory: this library was built without the "
                          "CUDA toolkit"));
    return;
  }
  CHECK_NOTHROW(device::require_kernels("AdamW"));
  const Fakes fakes{"", "old_driver"};
  const float one = 1;
  // A device of its own, as the kernels of the others are loaded.
  acc::cuda::set_device(7);
  const OnDevice memory{&one, sizeof one};
  CHECK_THROWS_WITH(
      device::clamp({memory.data(), DType::f32, {1}, {Device::Kind::cuda, 7}}, 1, nullptr),
      Catch::StartsWith("the driver is older than the CUDA toolkit"));
  acc::cuda::set_device(0);
}
