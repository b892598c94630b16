// Optimizers, clipping and the loss scale in device memory: the bits of the host's, over the fakes.
#include "runtime/device/kernels.hpp"
#include "runtime/training/cast.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/accelerator.hpp>
#include <filesystem>
#include <functional>
#include <limits>
#include <stdexcept>

#include "fakes.hpp"

using namespace acc::runtime;
using acc::testing::Fakes;
using acc::testing::OnDevice;

namespace {

constexpr std::size_t kCounts[] = {70, 3, 1029};
constexpr const char* kNames[] = {"w", "b", "v"};
constexpr DType kFloating[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

using Bytes = std::vector<std::byte>;

Bytes as_type(const std::vector<float>& values, DType type) {
  Bytes bytes(values.size() * size_of(type));
  training::from_floats(values.data(), bytes.data(), type, values.size());
  return bytes;
}

void write(const TensorView& view, const Bytes& bytes) {
  if (view.device.kind == Device::Kind::cuda)
    acc::cuda::copy(view.data, bytes.data(), bytes.size());
  else
    std::memcpy(view.data, bytes.data(), bytes.size());
}

Bytes read(const TensorView& view) {
  Bytes bytes(view.bytes());
  if (bytes.empty()) return bytes;
  if (view.device.kind == Device::Kind::cuda)
    acc::cuda::copy(bytes.data(), view.data, bytes.size());
  else
    std::memcpy(bytes.data(), view.data, bytes.size());
  return bytes;
}

/// Parameters in the memory of a device or of the host; gradients are the reducer's.
struct Model {
  Model(const Device& device, DType type) {
    for (std::size_t p = 0; p < std::size(kCounts); ++p) {
      std::vector<float> first(kCounts[p]);
      for (std::size_t i = 0; i < first.size(); ++i)
        first[i] = static_cast<float>(i % 13) * 0.25F - 1;
      void* at = on_host.emplace_back(as_type(first, type)).data();
      if (device.kind == Device::Kind::cuda)
        at = on_device.emplace_back(at, on_host.back().size()).data();
      parameters.push_back(
          {kNames[p], {at, type, {static_cast<std::int64_t>(kCounts[p])}, device}, {}});
    }
  }
  std::vector<Bytes> on_host;
  std::vector<OnDevice> on_device;
  std::vector<Parameter> parameters;
};

/// Whole numbers, whose mean over two ranks every type holds.
Bytes gradient_of(int rank, std::size_t step, std::size_t count, DType type) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] =
        static_cast<float>((i * 7 + step * 3 + static_cast<std::size_t>(rank) * 4) % 12) * 2 - 10;
  return as_type(values, type);
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(GradientReducer&)>;
/// After each of the steps, and what it leaves: for each rank some bytes, then numbers.
struct Left {
  std::vector<Bytes> bytes;
  std::vector<double> numbers;
  friend bool operator==(const Left&, const Left&) = default;
};

void pass(GradientReducer& reducer, std::size_t step) {
  for (std::size_t p = 0; p < std::size(kCounts); ++p) {
    const TensorView& gradient = reducer.gradient(p);
    write(gradient, gradient_of(reducer.group().rank(), step, gradient.count(), gradient.dtype));
    reducer.ready(p);
  }
  reducer.finish();
}

std::vector<Left> on_groups(int ranks, BackendKind backend,
                            const std::function<Left(ProcessGroup&)>& body) {
  GroupOptions options;
  options.backend = backend;
  options.timeout = Millis{20'000};
  auto groups = ProcessGroup::threads(ranks, options);
  std::vector<Left> left(groups.size());
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    if (backend == BackendKind::nccl) acc::cuda::set_device(group.device().index);
    left[static_cast<std::size_t>(group.rank())] = body(group);
    group = {};  // NCCL is left by each rank's own thread
  });
  return left;
}

Left train(ProcessGroup& group, DType type, GradientMode mode, const MakeOptimizer& make) {
  Model model{group.device(), type};
  ReducerOptions how;
  how.mode = mode;
  GradientReducer reducer{group, model.parameters, how};
  const auto optimizer = make(reducer);
  Left left;
  for (std::size_t step = 0; step < 4; ++step) {
    pass(reducer, step);
    const auto norm = step % 2 == 0 ? Norm::l2 : Norm::max;
    const auto clipped = clip_grad_norm(*optimizer, step == 3 ? 1e9 : 5.0, norm);
    left.numbers.push_back(clipped.norm);
    left.numbers.push_back(clipped.clipped ? 1 : 0);
    if (step == 2) clip_grad_value(*optimizer, 0.01);
    optimizer->step();
  }
  if (group.device().kind == Device::Kind::cuda) acc::cuda::synchronize();
  for (const auto& parameter : reducer.parameters()) left.bytes.push_back(read(parameter.value));
  for (const auto& tensor : optimizer->state()) {
    if (tensor.view.device != group.device()) throw std::logic_error{tensor.name};
    left.bytes.push_back(read(tensor.view));
  }
  return left;
}

bool has_kernels() {
  if (device::why_no_kernels().empty()) return true;
  WARN("skipped: " + device::why_no_kernels());
  return false;
}

}  // namespace

TEST_CASE("Sgd, AdamW and clipping in device memory leave the bits of the host's",
          "[runtime][nccl][training]") {
  if (!has_kernels()) return;
  const Fakes fakes;
  const int ranks = GENERATE(1, 2);
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto type = GENERATE(from_range(std::begin(kFloating), std::end(kFloating)));
  const int which = GENERATE(0, 1, 2, 3);
  CAPTURE(ranks, to_string(type), which);
  const MakeOptimizer make = [&](GradientReducer& reducer) -> std::unique_ptr<Optimizer> {
    SgdOptions sgd;
    sgd.learning_rate = 0.1;
    if (which == 3) return std::make_unique<AdamW>(reducer, AdamWOptions{});
    if (which > 0) sgd.momentum = 0.9;
    if (which == 2) sgd.nesterov = true, sgd.weight_decay = 0.01;
    return std::make_unique<Sgd>(reducer, sgd);
  };
  const auto body = [&](ProcessGroup& group) { return train(group, type, mode, make); };
  const auto expected = on_groups(ranks, BackendKind::cpu, body);
  const auto found = on_groups(ranks, BackendKind::nccl, body);
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    CHECK(found[rank].numbers == expected[rank].numbers);
    REQUIRE(found[rank].bytes.size() == expected[rank].bytes.size());
    for (std::size_t row = 0; row < expected[rank].bytes.size(); ++row) {
      INFO("row " << row);
      CHECK(found[rank].bytes[row] == expected[rank].bytes[row]);
    }
  }
}

TEST_CASE("the loss scale sees infinities in device memory, and leaves that step out on all ranks",
          "[runtime][nccl][training]") {
  if (!has_kernels()) return;
  const Fakes fakes;
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto trained = [&](BackendKind backend) {
    return on_groups(2, backend, [&](ProcessGroup& group) {
      Model model{group.device(), DType::f16};
      ReducerOptions how;
      how.mode = mode;
      GradientReducer reducer{group, model.parameters, how};
      Sgd optimizer{reducer, {.learning_rate = 0.1, .momentum = 0.9}};
      LossScaler scaler{LossScalerOptions{.initial_scale = 4}};
      Left done;
      for (std::size_t step = 0; step < 3; ++step) {
        for (std::size_t p = 0; p < std::size(kCounts); ++p) {
          std::vector<float> values(kCounts[p], 4.0F);
          if (step == 1 && p == 2 && group.rank() == 1)
            values[500] = std::numeric_limits<float>::infinity();
          write(reducer.gradient(p), as_type(values, DType::f16));
          reducer.ready(p);
        }
        reducer.finish();
        done.numbers.push_back(scaler.step(optimizer) ? 1 : 0);
        scaler.update();
        done.numbers.push_back(scaler.scale());
      }
      if (backend == BackendKind::nccl) acc::cuda::synchronize();
      for (const auto& parameter : reducer.parameters())
        done.bytes.push_back(read(parameter.value));
      return done;
    });
  };
  const auto left = trained(BackendKind::nccl);
  CHECK(left[0].numbers == std::vector<double>{1, 4, 0, 2, 1, 2});
  CHECK(left[1] == left[0]);
  // f16 gradients are divided as floats, with the same bits.
  CHECK(left == trained(BackendKind::cpu));
}

TEST_CASE("a model of bf16 in device memory is saved, loaded, and goes on from what was loaded",
          "[runtime][nccl][training]") {
  if (!has_kernels()) return;
  const Fakes fakes;
  const auto folder =
      std::filesystem::temp_directory_path() / ("acc-device-model-" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  GroupOptions options;
  options.backend = BackendKind::nccl;
  options.timeout = Millis{20'000};
  auto groups = ProcessGroup::threads(2, options);
  CHECK_NOTHROW(acc::testing::on_all(groups, [&](ProcessGroup& group) {
    const auto expect = [](bool truth, const char* what) {
      if (!truth) throw std::runtime_error{what};
    };
    {
      acc::Accelerator accelerator{group};
      Model model{accelerator.device(), DType::bf16};
      auto& reducer = accelerator.prepare_model(model.parameters);
      Sgd optimizer{reducer, SgdOptions{.learning_rate = 0.1}};
      accelerator.prepare(optimizer);
      pass(reducer, 0);
      accelerator.step(optimizer);
      acc::cuda::synchronize();
      accelerator.save_model(folder);
      const Bytes saved = read(model.parameters[2].value);
      const auto step_from_saved = [&] {
        accelerator.load_model(folder);
        expect(read(model.parameters[2].value) == saved, "what was saved");
        pass(reducer, 1);
        accelerator.step(optimizer);
        acc::cuda::synchronize();
        return read(model.parameters[2].value);
      };
      const Bytes after = step_from_saved();
      expect(after != saved, "the step changes it");
      pass(reducer, 2);
      accelerator.step(optimizer);
      expect(step_from_saved() == after, "master copies are of what was loaded");
    }
    group = {};
  }));
  std::filesystem::remove_all(folder);
}

TEST_CASE("without kernels optimizers for device memory are refused when they are made",
          "[runtime][nccl][training]") {
  if (device::why_no_kernels().empty()) return;
  std::vector<float> memory(2);
  std::vector<float> more(2);
  const TensorView view{memory.data(), DType::f32, {2}, {Device::Kind::cuda, 0}};
  const TensorView gradient{more.data(), DType::f32, {2}, {Device::Kind::cuda, 0}};
  const std::vector<Parameter> parameters{{"w", view, gradient}};
  CHECK_THROWS_WITH((AdamW{parameters, AdamWOptions{}}),
                    Catch::StartsWith("AdamW in device memory: this library was built without"));
  CHECK_THROWS_WITH(clip_grad_norm(parameters, 1),
                    Catch::StartsWith("clip_grad_norm in device memory: this library was built"));
}
