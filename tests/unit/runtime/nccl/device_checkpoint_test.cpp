// Checkpoints of memory of devices on whose streams work is pending, over the fakes.
#include "runtime/device/kernels.hpp"
#include "runtime/nccl/device.hpp"
#include "runtime/training/cast.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <dlfcn.h>

#include <acc/accelerator.hpp>
#include <acc/safetensors.hpp>
#include <stdexcept>
#include <thread>

#include "fakes.hpp"

using namespace acc::runtime;
using acc::testing::Fakes;
using acc::testing::OnDevice;
using acc::testing::TestFolder;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t kCount = 5;
constexpr std::size_t kBytes = kCount * sizeof(float);
using Floats = std::vector<float>;

/// A stream as PyTorch's are: the legacy stream doesn't wait for it.
class OwnStream {
 public:
  OwnStream() : stream_{acc::runtime::cuda::library()} {}
  [[nodiscard]] void* get() const { return stream_.get(); }
  /// What is enqueued next begins late.
  void delay() const {
    using Launch = int (*)(void* stream, void (*function)(void*), void* data);
    const auto library = acc::testing::program_folder() / "libfake_cudart.so";
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW);
    const auto launch = reinterpret_cast<Launch>(::dlsym(handle, "cudaLaunchHostFunc"));
    launch(
        stream_.get(), [](void*) { std::this_thread::sleep_for(milliseconds{200}); }, nullptr);
  }
  /// As a step that was enqueued and isn't done yet.
  void write_late(const TensorView& view, const Floats& values) const {
    delay();
    acc::cuda::copy_async(view.data, values.data(), view.bytes(), stream_.get());
  }
  /// What the next kernel on the stream reads.
  [[nodiscard]] Floats read(const TensorView& view) const {
    Floats values(view.count());
    acc::cuda::copy_async(values.data(), view.data, view.bytes(), stream_.get());
    acc::cuda::synchronize(stream_.get());
    return values;
  }

 private:
  acc::runtime::cuda::OwnedStream stream_;
};

const Floats kFirst(kCount, 1), kOld(kCount, 2), kNew(kCount, 3);

/// A rank with a model of one parameter and one buffer, whose work is on a stream of its own.
struct Rank {
  explicit Rank(const ProcessGroup& group, AcceleratorOptions options = {})
      : accelerator{group, std::move(options)} {
    ReducerOptions how;
    how.how.stream = stream.get();
    how.buffers = {{"buffer", buffer}};
    reducer = &accelerator.prepare_model({{"w", parameter, {}}}, how);
    acc::cuda::synchronize(stream.get());  // the broadcast is done
  }
  [[nodiscard]] TensorView view_of(const OnDevice& memory) const {
    return {memory.data(), DType::f32, {static_cast<std::int64_t>(kCount)}, accelerator.device()};
  }

  acc::Accelerator accelerator;
  OwnStream stream;
  OnDevice values{kFirst.data(), kBytes}, more{kFirst.data(), kBytes};
  TensorView parameter = view_of(values), buffer = view_of(more);
  GradientReducer* reducer = nullptr;
};

void expect(bool truth, const char* what) {
  if (!truth) throw std::runtime_error{what};
}

GroupOptions on_devices() {
  GroupOptions options;
  options.backend = BackendKind::nccl;
  options.timeout = Millis{20'000};
  return options;
}

Floats stored(const SafetensorsModel& model, const std::string& name) {
  HostTensor read{DType::f32, {static_cast<std::int64_t>(kCount)}};
  model.read(name, read.view());
  const auto all = read.as<float>();
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("save_state has the step that is still pending on a stream of the loop's",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  const TestFolder folder;
  const bool async = GENERATE(false, true);
  CAPTURE(async);
  AcceleratorOptions options;
  options.async_checkpoints = async;
  Rank rank{ProcessGroup::single(on_devices()), options};
  rank.stream.write_late(rank.parameter, kNew);
  rank.stream.write_late(rank.buffer, kOld);
  rank.accelerator.save_state(folder / "saved");
  rank.accelerator.wait_for_checkpoint();
  const Checkpoint saved{folder / "saved"};
  const auto values = saved.read("model", "w"), buffer = saved.read("buffers", "buffer");
  CHECK(Floats(values.as<float>().begin(), values.as<float>().end()) == kNew);
  CHECK(Floats(buffer.as<float>().begin(), buffer.as<float>().end()) == kOld);
}

TEST_CASE("save_model has the step that is still pending on a stream of the loop's",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  const TestFolder folder;
  Rank rank{ProcessGroup::single(on_devices())};
  rank.stream.write_late(rank.parameter, kNew);
  rank.accelerator.save_model(folder / "model");
  CHECK(stored(SafetensorsModel{folder / "model"}, "w") == kNew);
}

TEST_CASE("what load_state fills isn't overwritten by a step that was still pending",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  const TestFolder folder;
  Rank rank{ProcessGroup::single(on_devices())};
  rank.accelerator.save_state(folder / "saved");
  rank.stream.write_late(rank.parameter, kNew);
  rank.stream.write_late(rank.buffer, kNew);
  rank.accelerator.load_state(folder / "saved");
  CHECK(rank.stream.read(rank.parameter) == kFirst);
  CHECK(rank.stream.read(rank.buffer) == kFirst);
}

TEST_CASE("one tensor of a checkpoint is read behind pending work, too",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  const TestFolder folder;
  Rank rank{ProcessGroup::single(on_devices())};
  rank.accelerator.save_state(folder / "saved");
  rank.stream.write_late(rank.parameter, kNew);
  Checkpoint{folder / "saved"}.read("model", "w", 0, rank.parameter);
  CHECK(rank.stream.read(rank.parameter) == kFirst);
}

TEST_CASE("load_model comes behind pending steps on all ranks, and before what follows",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  const TestFolder folder;
  auto groups = ProcessGroup::threads(2, on_devices());
  CHECK_NOTHROW(acc::testing::on_all(groups, [&](ProcessGroup& group) {
    {
      Rank rank{group};
      rank.accelerator.save_model(folder / "model");
      rank.stream.write_late(rank.parameter, kNew);
      rank.stream.write_late(rank.buffer, kNew);
      rank.accelerator.load_model(folder / "model");
      const OwnStream other;
      expect(other.read(rank.parameter) == kFirst, "on another stream");
      expect(rank.stream.read(rank.parameter) == kFirst, "on the reducer's stream");
      expect(rank.stream.read(rank.buffer) == kFirst, "the buffer");
    }
    group = {};  // NCCL is left by each rank's own thread
  }));
}

TEST_CASE("restored gradients come behind pending work on the reducer's stream",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  Rank rank{ProcessGroup::single(on_devices())};
  const TensorView& gradient = rank.reducer->gradient(0);
  std::vector<HostTensor> sums;
  sums.emplace_back(DType::f32, gradient.shape);
  std::ranges::copy(kOld, sums.front().as<float>().begin());
  rank.stream.write_late(gradient, kNew);
  rank.reducer->restore_gradients(std::move(sums), "1");
  CHECK(rank.stream.read(gradient) == kOld);
}

TEST_CASE("a master copy is of the value that pending work on the reducer's stream writes",
          "[runtime][nccl][training]") {
  if (const auto why = device::why_no_kernels(); !why.empty()) {
    WARN("skipped: " + why);
    return;
  }
  const Fakes fakes;
  OwnStream stream;
  const auto group = ProcessGroup::single(on_devices());
  std::vector<std::uint16_t> first(kCount), next(kCount);
  training::from_floats(kFirst.data(), first.data(), DType::bf16, kCount);
  training::from_floats(kNew.data(), next.data(), DType::bf16, kCount);
  const OnDevice memory{first.data(), kBytes / 2};
  const TensorView value{
      memory.data(), DType::bf16, {static_cast<std::int64_t>(kCount)}, group.device()};
  ReducerOptions how;
  how.how.stream = stream.get();
  GradientReducer reducer{group, {{"w", value, {}}}, how};
  Sgd optimizer{reducer, SgdOptions{.learning_rate = 0.1}};
  const bool made_before = GENERATE(false, true);
  CAPTURE(made_before);
  if (made_before) (void)optimizer.state();
  stream.delay();
  acc::cuda::copy_async(value.data, next.data(), value.bytes(), stream.get());
  if (made_before) optimizer.values_changed();
  const auto state = optimizer.state();
  CHECK(stream.read(state.at(0).view) == kNew);
}
