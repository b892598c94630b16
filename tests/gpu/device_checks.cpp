#include "tests/gpu/device_checks.hpp"

#include "runtime/device/kernels.hpp"
#include "runtime/training/cast.hpp"
#include "tests/support/uneven_calls.hpp"

#include <acc/clip.hpp>
#include <acc/cuda.hpp>
#include <acc/optimizer.hpp>
#include <memory>
#include <string>
#include <vector>

namespace acc::testing {

using namespace acc::runtime;

namespace {

constexpr std::size_t kCount = 100'003;

/// One parameter and its gradient, in the memory of the current device or of the host.
struct Trained {
  Trained(DType type, const Device& device) : type_{type}, device_{device} {
    std::vector<float> values(kCount), gradients(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(i % 1013) * 0.01F - 5;
      gradients[i] = static_cast<float>(i % 977) * 0.003F - 1.4F;
    }
    for (const auto* floats : {&values, &gradients}) {
      auto& bytes = host_.emplace_back(kCount * size_of(type));
      training::from_floats(floats->data(), bytes.data(), type, kCount);
      if (device.kind == Device::Kind::cpu) continue;
      memory_.emplace_back(bytes.size());
      acc::cuda::copy(memory_.back().data(), bytes.data(), bytes.size());
    }
  }
  [[nodiscard]] std::vector<Parameter> parameters() { return {{"w", view(0), view(1)}}; }
  [[nodiscard]] std::vector<std::byte> values() {
    auto bytes = host_[0];
    if (!memory_.empty()) acc::cuda::copy(bytes.data(), memory_[0].data(), bytes.size());
    return bytes;
  }

 private:
  TensorView view(std::size_t which) {
    void* const at =
        memory_.empty() ? static_cast<void*>(host_[which].data()) : memory_[which].data();
    return {at, type_, {static_cast<std::int64_t>(kCount)}, device_};
  }
  DType type_;
  Device device_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<acc::cuda::DeviceBuffer> memory_;
};

std::unique_ptr<Optimizer> make(int which, std::vector<Parameter> parameters) {
  SgdOptions sgd;
  sgd.learning_rate = 0.1;
  sgd.momentum = 0.9;
  sgd.nesterov = which == 1;
  if (which == 2) return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{});
  return std::make_unique<Sgd>(std::move(parameters), sgd);
}

struct Trace {
  std::vector<double> norms;
  std::vector<std::byte> values;
};

Trace train(DType type, const Device& device, int which) {
  Trained model{type, device};
  const auto optimizer = make(which, model.parameters());
  Trace trace;
  for (int step = 0; step < 3; ++step) {
    const auto norm = step == 1 ? Norm::max : Norm::l2;
    trace.norms.push_back(clip_grad_norm(*optimizer, 50.0, norm).norm);
    optimizer->step();
  }
  clip_grad_value(*optimizer, 0.001);
  optimizer->step();
  trace.values = model.values();
  return trace;
}

}  // namespace

void check_counts(ProcessGroup& group, Verdicts& verdicts) {
  const auto told = [&](const char* what, const std::function<void()>& check) {
    try {
      check();
      verdicts.expect(true, what);
    } catch (const std::exception& error) {
      verdicts.expect(false, std::string{what} + ": " + error.what());
    }
  };
  told("counts of each rank's own", [&] { uneven::check_calls(group); });
  told("messages at once", [&] {
    const int me = group.rank(), n = group.size();
    const int right = (me + 1) % n, left = (me + n - 1) % n;
    const auto mine = uneven::elements(me, right, kCount);
    const acc::cuda::DeviceBuffer out{kCount * 4}, in{kCount * 4};
    acc::cuda::copy(out.data(), mine.data(), kCount * 4);
    group.batch({Message::recv(in.data(), kCount, DType::i32, left),
                 Message::send(out.data(), kCount, DType::i32, right)});
    std::vector<std::int32_t> got(kCount);
    acc::cuda::copy(got.data(), in.data(), kCount * 4);
    uneven::expect(got == uneven::elements(left, me, kCount), "a ring");
  });
  told("coalesced calls", [&] {
    const std::vector<float> ones(64, 1.0F);
    const acc::cuda::DeviceBuffer a{256}, b{256};
    for (const auto* buffer : {&a, &b}) acc::cuda::copy(buffer->data(), ones.data(), 256);
    group.coalesce([&] {
      group.all_reduce(a.data(), a.data(), 64, DType::f32);
      group.all_reduce(b.data(), b.data(), 64, DType::f32, ReduceOp::max);
    });
    std::vector<float> sum(64), most(64);
    acc::cuda::copy(sum.data(), a.data(), 256);
    acc::cuda::copy(most.data(), b.data(), 256);
    uneven::expect(sum == std::vector(64, static_cast<float>(group.size())) && most == ones,
                   "their results");
  });
}

void check_training(ProcessGroup& group, Verdicts& verdicts) {
  if (const auto why = device::why_no_kernels(); !why.empty()) {
    try {
      (void)train(DType::f32, group.device(), 0);
      verdicts.expect(false, "no kernels, and nothing said so");
    } catch (const Error& error) {
      verdicts.expect(std::string{error.what()}.find(why) != std::string::npos, error.what());
    }
    return;
  }
  for (const auto type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (int which = 0; which < 3; ++which) {
      const auto on_host = train(type, {}, which);
      const auto on_device = train(type, group.device(), which);
      const auto what = std::string{to_string(type)} + " optimizer " + std::to_string(which);
      verdicts.expect(on_device.norms == on_host.norms, what + ": norms");
      verdicts.expect(on_device.values == on_host.values, what + ": values");
    }
  }
}

}  // namespace acc::testing
