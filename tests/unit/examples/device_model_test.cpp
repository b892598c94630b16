#include "examples/08_fashion_mnist_cpp/device_model.hpp"

#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/nccl/fakes.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <acc/accelerator.hpp>
#include <cmath>
#include <cstring>
#include <random>

using namespace acc::runtime;
using acc::testing::Fakes;
using example::Image;

namespace {

constexpr std::uint64_t kSeed = 7;

/// Blots, so that there is something to recognise; every fifth one is of one colour, in which all
/// values that are pooled are equal.
std::vector<Image> pictures(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  std::vector<Image> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i].label = static_cast<std::uint8_t>(random() % example::kClasses);
    const auto shade = static_cast<std::uint8_t>(random() % 256);
    for (std::size_t p = 0; p < example::kPixels; ++p) {
      const std::size_t y = p / example::kSide, x = p % example::kSide;
      const bool blot = y / 3 == made[i].label || x / 3 == (made[i].label * 3U) % 9;
      const auto noise = static_cast<std::uint8_t>(random() % 64);
      made[i].pixels[p] = i % 5 == 4 ? shade
                          : blot     ? static_cast<std::uint8_t>(255 - noise)
                                     : noise;
    }
  }
  return made;
}

std::vector<float> read(const TensorView& view) {
  std::vector<float> values(view.count());
  if (view.device.kind == Device::Kind::cuda)
    acc::cuda::copy(values.data(), view.data, view.bytes());
  else
    std::memcpy(values.data(), view.data, view.bytes());
  return values;
}

/// The largest difference, as a part of the largest value.
double difference(const std::vector<float>& one, const std::vector<float>& other) {
  REQUIRE(one.size() == other.size());
  double apart = 0, greatest = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    apart = std::max(apart, std::abs(static_cast<double>(one[i]) - static_cast<double>(other[i])));
    greatest = std::max(greatest, std::abs(static_cast<double>(other[i])));
  }
  REQUIRE(greatest > 0);
  return apart / greatest;
}

constexpr Device kCpu{}, kCuda{Device::Kind::cuda, 0};

/// What a training leaves behind on rank 0: parameters and the optimizer's state, by name.
using Left = std::map<std::string, std::vector<float>>;

/// Some steps of `ranks` ranks as threads, each with its share of every batch.
Left train(int ranks, BackendKind backend, std::size_t steps, const std::string& from,
           const std::string& to) {
  GroupOptions options;
  options.backend = backend;
  options.timeout = Millis{20'000};
  auto groups = ProcessGroup::threads(ranks, options);
  Left left;
  const auto run = [&](const ProcessGroup& group) {
    acc::Accelerator accelerator{group};
    const auto model = example::make_model(accelerator.device(), kSeed);
    auto& reducer = accelerator.prepare_model(model->parameters());
    const auto optimizer = model->make_sgd(reducer, 0.05, 0.9);
    accelerator.prepare(*optimizer);
    if (!from.empty()) accelerator.load_state(from);
    for (std::size_t step = 0; step < steps; ++step) {
      const auto batch = pictures(30, optimizer->steps());
      const std::size_t share = batch.size() / static_cast<std::size_t>(ranks);
      reducer.zero_gradients();
      accelerator.backward([&](double factor) {
        (void)model->learn(
            std::span{batch}.subspan(static_cast<std::size_t>(accelerator.process_index()) * share,
                                     share),
            factor);
        for (std::size_t i = reducer.parameters().size(); i-- > 0;) reducer.ready(i);
      });
      optimizer->set_learning_rate(0.05 / static_cast<double>(1 + optimizer->steps()));
      accelerator.step(*optimizer);
    }
    if (!to.empty()) accelerator.save_state(to);
    if (!accelerator.is_main_process()) return;
    for (const auto& parameter : reducer.parameters()) left[parameter.name] = read(parameter.value);
    for (const auto& tensor : optimizer->state()) left[tensor.name] = read(tensor.view);
    left["steps"] = {static_cast<float>(optimizer->steps())};
  };
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    run(group);
    group = {};  // NCCL is left by each rank's own thread
  });
  return left;
}

void check_alike(const Left& one, const Left& other) {
  REQUIRE(other.size() == 2 * example::Net::parts().size() + 1);
  REQUIRE(one.size() == other.size());
  for (const auto& [name, values] : other) {
    INFO(name);
    REQUIRE(one.contains(name));
    CHECK(difference(one.at(name), values) < 1e-4);
  }
}

struct Folder {
  Folder()
      : path{std::filesystem::temp_directory_path() /
             ("acc-device-" + std::to_string(::getpid()))} {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path path;
};

}  // namespace

SCENARIO("the net on a device computes what the net on the CPU does", "[examples]") {
  const Fakes fakes;
  const auto images = pictures(31, 1);  // of 12 at a time: the last ones are 7
  const auto on_cpu = example::make_model(kCpu, kSeed);
  const auto on_cuda = example::make_model(kCuda, kSeed);
  const auto cpu = on_cpu->parameters();
  const auto cuda = on_cuda->parameters();
  REQUIRE(cuda.size() == cpu.size());

  THEN("it begins with the same bits, on the device") {
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      CHECK(cuda[i].name == cpu[i].name);
      CHECK(cuda[i].value.shape == cpu[i].value.shape);
      CHECK(cuda[i].value.device == kCuda);
      CHECK(cuda[i].gradient.device == kCuda);
      CHECK(read(cuda[i].value) == read(cpu[i].value));
    }
  }
  THEN("it has the same loss and gradient, and recognises the same images") {
    const double expected = on_cpu->learn(images, 2.5);
    CHECK(on_cuda->learn(images, 2.5) == Approx(expected).epsilon(1e-5));
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      INFO(cpu[i].name);
      CHECK(difference(read(cuda[i].gradient), read(cpu[i].gradient)) < 1e-4);
    }
    CHECK(on_cuda->recognised(images) == on_cpu->recognised(images));
  }
  THEN("a bias that drowns all else decides what is recognised") {
    std::vector<float> bias(example::kClasses, 0.0F);
    bias[3] = 1000;
    std::memcpy(cpu[example::kFullB].value.data, bias.data(), cpu[example::kFullB].value.bytes());
    acc::cuda::copy(cuda[example::kFullB].value.data, bias.data(),
                    cuda[example::kFullB].value.bytes());
    const auto threes = std::ranges::count(images, 3, &Image::label);
    REQUIRE(threes > 0);
    CHECK(on_cpu->recognised(images) == static_cast<std::size_t>(threes));
    CHECK(on_cuda->recognised(images) == static_cast<std::size_t>(threes));
  }
  THEN("gradients add up") {
    for (auto* model : {on_cpu.get(), on_cuda.get()}) {
      (void)model->learn(std::span{images}.first(20), 1);
      (void)model->learn(std::span{images}.last(11), 0.25);
    }
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      INFO(cpu[i].name);
      CHECK(difference(read(cuda[i].gradient), read(cpu[i].gradient)) < 1e-4);
    }
  }
}

SCENARIO("a training on devices goes the way of one on the CPU", "[examples]") {
  const Fakes fakes;
  const int ranks = GENERATE(1, 2, 3);
  const auto expected = train(ranks, BackendKind::cpu, 8, {}, {});
  check_alike(train(ranks, BackendKind::nccl, 8, {}, {}), expected);
  // And it is a way: the parameters are no longer what they were.
  CHECK(difference(expected.at("conv1.weight"),
                   train(ranks, BackendKind::cpu, 0, {}, {}).at("conv1.weight")) > 1e-2);
}

SCENARIO("a checkpoint of a training on devices goes on on the CPU, and the other way round",
         "[examples]") {
  const Fakes fakes;
  const Folder folder;
  const auto checkpoint = (folder.path / "checkpoint").string();
  const auto before = GENERATE(BackendKind::cpu, BackendKind::nccl);
  const auto after = before == BackendKind::cpu ? BackendKind::nccl : BackendKind::cpu;
  const auto saved = train(2, before, 5, {}, checkpoint);
  THEN("what is loaded has the bits of what was saved") {
    CHECK(train(1, after, 0, checkpoint, {}) == saved);
  }
  THEN("more steps go the way they would have gone") {
    check_alike(train(2, after, 3, checkpoint, {}), train(2, before, 8, {}, {}));
  }
}

SCENARIO("--device cuda says in a line what is missing", "[examples]") {
  const Fakes fakes{"", "no_driver"};
  CHECK_THROWS_WITH(example::backend_for("cuda"), Catch::Contains("no driver on this machine") &&
                                                      Catch::Contains("--device cpu") &&
                                                      !Catch::Contains("\n"));
  CHECK(example::backend_for("cpu") == BackendKind::cpu);
  CHECK(example::backend_for("auto") == BackendKind::automatic);
}
