// Training in the memory of devices, over the fakes.
#include "runtime/device/kernels.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/accelerator.hpp>
#include <acc/optimizer.hpp>
#include <stdexcept>
#include <utility>

#include "fakes.hpp"

using namespace acc::runtime;
using acc::testing::Fakes;
using acc::testing::OnDevice;

namespace {

constexpr std::size_t kCounts[] = {70, 3, 129};
const std::string kNames[] = {"w", "b", "v"};

float start_of(std::size_t i) { return static_cast<float>(i % 13) * 0.25F - 1; }
float gradient_of(int rank, std::size_t step, std::size_t i) {
  return static_cast<float>((i * 7 + step * 3 + static_cast<std::size_t>(rank) * 5) % 11) - 5;
}

/// acc::Sgd with momentum for memory of devices, as a user would write it with a kernel. What the
/// fakes call a device's memory a loop can reach.
class OwnSgd final : public Optimizer {
 public:
  template <class Of>
  OwnSgd(Of&& of, double learning_rate)
      : Optimizer{std::forward<Of>(of), learning_rate, Reach::device} {}

 private:
  std::vector<std::string_view> kinds() const override { return {"momentum_buffer"}; }
  void update(const Piece& piece) const override {
    acc::cuda::synchronize(nullptr);  // it comes after what is on the stream, as a kernel would
    auto* values = static_cast<float*>(piece.values);
    const auto* gradient = static_cast<const float*>(piece.gradient);
    auto* momentum = static_cast<float*>(piece.state[0]);
    for (std::size_t i = 0; i < piece.count; ++i) {
      momentum[i] = 0.9F * momentum[i] + gradient[i];
      values[i] -= static_cast<float>(learning_rate()) * momentum[i];
    }
  }
};

std::unique_ptr<Optimizer> make_optimizer(GradientReducer& reducer, const Device& device) {
  if (device.kind == Device::Kind::cuda) return std::make_unique<OwnSgd>(reducer, 0.125);
  return std::make_unique<Sgd>(reducer, SgdOptions{.learning_rate = 0.125, .momentum = 0.9});
}

/// Parameters with values, in the memory of a device or of the host; gradients are the reducer's.
struct Values {
  explicit Values(const Device& device) {
    for (std::size_t p = 0; p < std::size(kCounts); ++p) {
      std::vector<float> first(kCounts[p]);
      for (std::size_t i = 0; i < first.size(); ++i) first[i] = start_of(i);
      void* at = on_host.emplace_back(std::move(first)).data();
      if (device.kind == Device::Kind::cuda)
        at = on_device.emplace_back(at, kCounts[p] * sizeof(float)).data();
      const TensorView view{at, DType::f32, {static_cast<std::int64_t>(kCounts[p])}, device};
      parameters.push_back({kNames[p], view, {}});
    }
  }
  std::vector<std::vector<float>> on_host;
  std::vector<OnDevice> on_device;
  std::vector<Parameter> parameters;
};

void write(const TensorView& view, const std::vector<float>& values) {
  if (view.device.kind == Device::Kind::cuda)
    acc::cuda::copy(view.data, values.data(), view.bytes());
  else
    std::copy(values.begin(), values.end(), static_cast<float*>(view.data));
}

std::vector<float> read(const TensorView& view) {
  std::vector<float> values(view.count());
  if (view.count() == 0) return values;
  if (view.device.kind == Device::Kind::cuda)
    acc::cuda::copy(values.data(), view.data, view.bytes());
  else
    std::copy_n(static_cast<const float*>(view.data), values.size(), values.data());
  return values;
}

/// One line of numbers for each rank: the parameters after five steps, then the state.
using Left = std::vector<std::vector<std::vector<float>>>;

Left train(int ranks, BackendKind backend, GradientMode mode) {
  GroupOptions options;
  options.backend = backend;
  options.timeout = Millis{20'000};
  auto groups = ProcessGroup::threads(ranks, options);
  Left left(groups.size());
  const auto run = [&](const ProcessGroup& group) {
    acc::Accelerator accelerator{group};
    Values values{accelerator.device()};
    ReducerOptions how;
    how.mode = mode;
    auto& reducer = accelerator.prepare_model(values.parameters, how);
    const auto optimizer = make_optimizer(reducer, accelerator.device());
    for (std::size_t step = 0; step < 5; ++step) {
      for (std::size_t p = 0; p < std::size(kCounts); ++p) {
        std::vector<float> gradient(kCounts[p]);
        for (std::size_t i = 0; i < gradient.size(); ++i)
          gradient[i] = gradient_of(accelerator.process_index(), step, i);
        write(reducer.gradient(p), gradient);
        reducer.ready(p);
      }
      reducer.finish();
      optimizer->step();
    }
    auto& mine = left[static_cast<std::size_t>(accelerator.process_index())];
    for (const auto& parameter : values.parameters) mine.push_back(read(parameter.value));
    for (const auto& tensor : optimizer->state()) {
      if (tensor.view.device != accelerator.device()) throw std::logic_error{tensor.name};
      mine.push_back(read(tensor.view));
    }
  };
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    run(group);
    group = {};  // NCCL is left by each rank's own thread
  });
  return left;
}

/// Steps of several backwards: all use 'w', rank 0 'b' in the second one, none 'v'.
Left train_with_unused(int ranks, BackendKind backend, GradientMode mode) {
  GroupOptions options;
  options.backend = backend;
  options.timeout = Millis{20'000};
  auto groups = ProcessGroup::threads(ranks, options);
  Left left(groups.size());
  const auto run = [&](const ProcessGroup& group) {
    if (group.device().kind == Device::Kind::cuda) acc::cuda::set_device(group.device().index);
    Values values{group.device()};
    GradientReducer reducer{
        group, values.parameters, {.mode = mode, .find_unused_parameters = true}};
    const auto optimizer = make_optimizer(reducer, group.device());
    std::size_t number = 0;
    for (const std::size_t backwards : {2U, 1U, 3U}) {
      optimizer->zero_grad();
      for (std::size_t backward = 0; backward < backwards; ++backward, ++number) {
        reducer.gather_means();
        for (std::size_t p = 0; p < (backward == 1 && group.rank() == 0 ? 2U : 1U); ++p) {
          std::vector<float> gradient = read(reducer.gradient(p));
          for (std::size_t i = 0; i < gradient.size(); ++i)
            gradient[i] += gradient_of(group.rank(), number, i);
          write(reducer.gradient(p), gradient);
          reducer.ready(p);
        }
        reducer.finish();
      }
      optimizer->step();
    }
    for (const auto& parameter : values.parameters)
      left[static_cast<std::size_t>(group.rank())].push_back(read(parameter.value));
  };
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    run(group);
    group = {};
  });
  return left;
}

}  // namespace

SCENARIO("an optimizer of the user's works in device memory as ours in the host's, sharded or not",
         "[runtime][nccl][training]") {
  const Fakes fakes;
  const int ranks = GENERATE(1, 2, 3);
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto expected = train(ranks, BackendKind::cpu, mode);
  const auto found = train(ranks, BackendKind::nccl, mode);
  REQUIRE(expected[0].size() == 2 * std::size(kCounts));
  for (std::size_t rank = 0; rank < expected.size(); ++rank)
    for (std::size_t row = 0; row < expected[rank].size(); ++row) {
      INFO("rank " << rank << ", row " << row);
      CHECK_THAT(found[rank][row], Catch::Matchers::Approx(expected[rank][row]).margin(1e-5F));
    }
}

SCENARIO("several backwards in a step, and unused parameters, in device memory as in the host's",
         "[runtime][nccl][training]") {
  const Fakes fakes;
  const int ranks = GENERATE(2, 3);
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto expected = train_with_unused(ranks, BackendKind::cpu, mode);
  const auto found = train_with_unused(ranks, BackendKind::nccl, mode);
  for (std::size_t rank = 0; rank < expected.size(); ++rank)
    for (std::size_t row = 0; row < expected[rank].size(); ++row) {
      INFO("rank " << rank << ", row " << row << ", scattered "
                   << (mode == GradientMode::reduce_scatter));
      CHECK_THAT(found[rank][row], Catch::Matchers::Approx(expected[0][row]).margin(1e-5F));
    }
  for (std::size_t i = 0; i < expected[0][2].size(); ++i) CHECK(expected[0][2][i] == start_of(i));
}

TEST_CASE("gather, pad, reduce and broadcast take tensors in device memory",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  const auto backend = GENERATE(BackendKind::nccl, BackendKind::cpu);
  GroupOptions options;
  options.backend = backend;
  options.timeout = Millis{20'000};
  auto groups = ProcessGroup::threads(3, options);
  CHECK_NOTHROW(acc::testing::on_all(groups, [&](ProcessGroup& group) {
    const auto expect = [](bool truth, const char* what) {
      if (!truth) throw std::runtime_error{what};
    };
    const int me = group.rank();
    const Device device{Device::Kind::cuda, backend == BackendKind::nccl ? me : 0};
    acc::cuda::set_device(device.index);
    {
      const std::vector<float> values{static_cast<float>(me), 10, 20, 30};
      const OnDevice memory{values.data(), 16};
      const ConstTensorView mine{memory.data(), DType::f32, {2, 2}, device};
      const auto all = gather(group, mine);
      expect(all.shape() == Shape{6, 2} && all.as<float>()[8] == 2.0F, "gather");
      expect(reduce(group, mine, Reduction::max).as<float>()[0] == 2.0F, "max");
      expect(reduce(group, mine, Reduction::mean).as<float>()[0] == 1.0F, "mean");
      expect(reduce(group, mine, Reduction::sum).as<float>()[3] == 90.0F, "sum");
      expect(broadcast(group, mine, 2).as<float>()[0] == 2.0F, "broadcast");
      expect(first_of(mine, 1).shape() == Shape{1, 2}, "the first");
      const ConstTensorView uneven{memory.data(), DType::f32, {me + 1}, device};
      const auto padded = pad_across_processes(group, uneven, 0, -1);
      expect(padded.shape() == Shape{3}, "pad");
      expect(padded.as<float>()[2] == (me == 2 ? 20.0F : -1.0F), "what it is padded with");
      acc::Accelerator accelerator{group};
      expect(accelerator.gather(TensorView{memory.data(), DType::f32, {4}, device}).count() == 12,
             "by the accelerator");
    }
    group = {};
  }));
}

TEST_CASE("an accelerator's thread works on the device of its rank", "[runtime][nccl][training]") {
  const Fakes fakes;
  GroupOptions options;
  options.backend = BackendKind::nccl;
  auto groups = ProcessGroup::threads(3, options);
  for (int rank = 0; rank < 3; ++rank) {
    auto& group = groups[static_cast<std::size_t>(rank)];
    CHECK(group.device() == Device{Device::Kind::cuda, rank});
    const acc::Accelerator accelerator{group};
    CHECK(accelerator.device() == Device{Device::Kind::cuda, rank});
    CHECK(acc::cuda::current_device() == rank);
  }
  acc::cuda::set_device(0);
}

TEST_CASE("a model that isn't on the group's device is refused, not touched",
          "[runtime][nccl][training]") {
  const Fakes fakes;
  GroupOptions options;
  options.backend = BackendKind::nccl;
  Values on_host{Device{}}, on_device{Device{Device::Kind::cuda, 0}};
  CHECK_THROWS_WITH((GradientReducer{ProcessGroup::single(options), on_host.parameters}),
                    Catch::Contains("'w' is on cpu") && Catch::Contains("cuda:0") &&
                        Catch::Contains("cpu backend"));
  for (auto& parameter : on_device.parameters) parameter.value.device.index = 1;
  CHECK_THROWS_WITH((GradientReducer{ProcessGroup::single(options), on_device.parameters}),
                    Catch::Contains("'w' is on cuda:1") && Catch::Contains("cuda:0"));
  options.backend = BackendKind::cpu;
  CHECK_THROWS_WITH((GradientReducer{ProcessGroup::single(options), on_device.parameters}),
                    Catch::Contains("'w' is on cuda:1") && Catch::Contains("nccl backend"));
}

TEST_CASE("an optimizer refuses what it can't reach", "[runtime][nccl][training]") {
  std::vector<float> memory(2);
  std::vector<float> gradients(2);
  const Device device{Device::Kind::cuda, 0};
  Parameter parameter{"w", {memory.data(), DType::f32, {2}, device}, {}};
  CHECK_THROWS_WITH((OwnSgd{std::vector{parameter}, 1}), Catch::Contains("has no memory"));
  parameter.gradient = {gradients.data(), DType::f32, {2}, device};
  CHECK_NOTHROW(OwnSgd{std::vector{parameter}, 1});
  parameter.value.dtype = parameter.gradient.dtype = DType::bf16;
  if (device::why_no_kernels().empty())
    CHECK_NOTHROW(OwnSgd{std::vector{parameter}, 1});
  else
    CHECK_THROWS_WITH((OwnSgd{std::vector{parameter}, 1}), Catch::Contains("master copy of 'w'"));
}
