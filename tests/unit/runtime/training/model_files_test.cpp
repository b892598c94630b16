#include "tests/support/temporary_folder.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/accelerator.hpp>
#include <acc/error.hpp>
#include <acc/safetensors.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

/// save_model and load_model: a prepared model in the files of Hugging Face's.
using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::TestFolder;

namespace fs = std::filesystem;

namespace {

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator{folder})
    names.push_back(entry.path().filename().native());
  std::ranges::sort(names);
  return names;
}

std::string contents_of(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Three parameters of 400 bytes and a buffer of 4.
struct Net {
  std::vector<float> a = std::vector<float>(100), b = a, c = a, mean{0};
  explicit Net(float value) {
    std::ranges::fill(a, value);
    std::ranges::fill(b, value + 1);
    std::ranges::fill(c, value + 2);
    mean[0] = value + 3;
  }
  GradientReducer& prepare(Accelerator& accelerator) {
    return accelerator.prepare_model({{"a", TensorView{std::span{a}, {10, 10}}, {}},
                                      {"b", TensorView{std::span{b}}, {}},
                                      {"c", TensorView{std::span{c}}, {}}},
                                     {.buffers = {{"norm.mean", TensorView{std::span{mean}}}}});
  }
  friend bool operator==(const Net&, const Net&) = default;
};

const std::vector<std::string> kThree{"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"};

}  // namespace

TEST_CASE("a prepared model is saved by one rank and loaded by all", "[runtime][training]") {
  const TestFolder folder;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{static_cast<float>(10 * group.rank())};  // rank 0's counts
    net.prepare(accelerator);
    if (accelerator.save_model(folder / "new" / "model") !=
        std::vector<std::string>{"model.safetensors"})
      throw std::runtime_error{"other names"};
  });
  CHECK(names_in(folder / "new" / "model") == std::vector<std::string>{"model.safetensors"});
  const SafetensorsFile file{folder / "new" / "model" / "model.safetensors"};
  CHECK(file.metadata() == TensorMetadata{{"format", "pt"}});
  CHECK(file.find("a")->shape == Shape{10, 10});
  CHECK(file.find("norm.mean") != nullptr);
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{50};
    net.prepare(accelerator);
    // The others needn't see the files.
    accelerator.load_model(group.rank() == 0 ? folder / "new" / "model" : fs::path{"/nowhere"});
    if (net != Net{0}) throw std::runtime_error{"other values"};
  });
}

TEST_CASE("a model above the limit is in several files with an index, as transformers names them",
          "[runtime][training]") {
  const TestFolder folder;
  std::vector<std::string> names;
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{1};
    net.prepare(accelerator);
    const auto told = accelerator.save_model(folder.path(), "0.8KB");
    if (told != kThree) throw std::runtime_error{"other names"};
    Net again{7};
    Accelerator other{group};
    again.prepare(other);
    other.load_model(folder.path());
    if (again != net) throw std::runtime_error{"other values"};
  });
  CHECK(names_in(folder.path()) == kThree);
  const auto index = contents_of(folder / "model.safetensors.index.json");
  CHECK_THAT(index, Catch::Contains("\"total_size\": 1204") &&
                        Catch::Contains("\"a\": \"model-00001-of-00002.safetensors\"") &&
                        Catch::Contains("\"b\": \"model-00001-of-00002.safetensors\"") &&
                        Catch::Contains("\"c\": \"model-00002-of-00002.safetensors\"") &&
                        Catch::Contains("\"norm.mean\": \"model-00002-of-00002.safetensors\""));
}

TEST_CASE("a model that is saved again leaves nothing of the old one, and nothing else is touched",
          "[runtime][training]") {
  const TestFolder folder;
  Accelerator accelerator{ProcessGroup::single()};
  Net net{1};
  net.prepare(accelerator);
  for (const auto* foreign : {"config.json", "other-00001-of-00002.safetensors",
                              "model-1-of-2.safetensors", "model-00001-of-00002.bin"})
    std::ofstream{folder / foreign} << "x";
  const auto left = names_in(folder.path());
  const auto with = [&](std::vector<std::string> names) {
    names.insert(names.end(), left.begin(), left.end());
    std::ranges::sort(names);
    return names;
  };
  for (const auto* size : {"0.4KB", "10GB", "0.8KB", "0.8KB", "0.4KB", "1KB"}) {
    net.a[0] += 1;
    INFO(size);
    CHECK(names_in((accelerator.save_model(folder.path(), size), folder.path())) ==
          with(accelerator.save_model(folder.path(), size)));
    CHECK(SafetensorsModel{folder.path()}.read("a").as<float>()[0] == net.a[0]);
  }
}

TEST_CASE("a model that was saved into a checkpoint's folder made the checkpoint useless",
          "[runtime][training]") {
  const TestFolder folder;
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{1};
    net.prepare(accelerator);
    accelerator.save_state(folder / "out");
    const Net saved = net;
    net.a[0] = 7;
    const auto said = refusal([&] { accelerator.save_model(folder / "out"); });
    accelerator.load_state(folder / "out");
    const bool is_refused = said.find("out' is a checkpoint") != std::string::npos;
    if (!is_refused || net != saved) throw std::logic_error{said};
    accelerator.save_model(folder / "out" / "model");
  });
  // A manifest that isn't of a checkpoint is no matter.
  std::ofstream{folder / "manifest.json"} << "{}";
  on_ranks(1, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{1};
    net.prepare(accelerator);
    accelerator.save_model(folder.path());
  });
}

TEST_CASE("files that aren't the model's are refused on all ranks, before anything is changed",
          "[runtime][training]") {
  const TestFolder folder;
  std::vector<float> x(100), small(3);
  const auto write = [&](const std::string& name, std::vector<NamedTensor> tensors) {
    save_safetensors(folder / name, tensors);
    return folder / name;
  };
  const TensorView square{std::span{x}, {10, 10}};
  const TensorView row{std::span{x}};
  const TensorView mean{x.data(), DType::f32, {1}};
  const std::vector<std::pair<fs::path, std::string>> cases{
      {write("missing", {{"a", square}, {"b", row}, {"norm.mean", mean}}), "'c' isn't in it"},
      {write("more", {{"a", square}, {"b", row}, {"c", row}, {"d", row}, {"norm.mean", mean}}),
       "also holds d"},
      {write("shape", {{"a", row}, {"b", row}, {"c", row}, {"norm.mean", mean}}),
       "'a' is F32 [100]"},
      {folder / "never", "No such file"},
  };
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{1};
    net.prepare(accelerator);
    for (const auto& [path, words] : cases)
      if (refusal([&] { accelerator.load_model(path); }).find(words) == std::string::npos)
        throw std::runtime_error{"not told: " + words};
    if (net != Net{1}) throw std::runtime_error{"it was changed"};
    for (const auto* size : {"", "ten", "-1GB", "0", "1XB", "GB"})
      if (refusal([&] { accelerator.save_model(folder / "m", size); }).find("isn't a size") ==
          std::string::npos)
        throw std::runtime_error{std::string{"taken as a size: "} + size};
  });
  CHECK_FALSE(fs::exists(folder / "m"));
}

TEST_CASE("a model that can't be written is an Error with path and reason on every rank",
          "[runtime][training]") {
  const TestFolder folder;
  std::ofstream{folder / "file"} << "x";
  fs::create_symlink("loop", folder / "loop");
  struct Case {
    fs::path path;
    ErrorCode code;
    std::string words;
  };
  const std::vector<Case> cases{
      {folder / "file", ErrorCode::system, "/file': Not a directory"},
      {folder / "file" / "sub", ErrorCode::system, "/file': Not a directory"},
      {folder / "loop", ErrorCode::system, "/loop': Too many levels of symbolic links"},
      {folder / "loop" / "sub", ErrorCode::system, "/loop': Too many levels of symbolic links"},
      {"/proc/x", ErrorCode::system, "'/proc/x': No such file or directory"},
      {"", ErrorCode::invalid_argument, "the path of a folder is needed"}};
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Net net{1};
    net.prepare(accelerator);
    for (const auto& [path, code, words] : cases) {
      try {
        accelerator.save_model(path);
      } catch (const Error& error) {  // any other exception ends this rank, and the test fails
        if (error.code() == code && std::string{error.what()}.find(words) != std::string::npos)
          continue;
        throw std::runtime_error{"not '" + words + "' but " + error.what()};
      }
      throw std::runtime_error{"written: " + path.native()};
    }
    accelerator.wait_for_everyone();
    accelerator.save_model(folder / "good");
  });
  CHECK(names_in(folder / "good") == std::vector<std::string>{"model.safetensors"});
}

TEST_CASE("which model is meant must be said where there are several", "[runtime][training]") {
  const TestFolder folder;
  Accelerator accelerator{ProcessGroup::single()};
  CHECK_THAT(refusal([&] { accelerator.save_model(folder.path()); }),
             Catch::Contains("0 models are prepared"));
  Net one{1}, two{5};
  one.prepare(accelerator);
  GradientReducer& second = two.prepare(accelerator);
  CHECK_THAT(refusal([&] { accelerator.save_model(folder.path()); }), Catch::Contains("say which"));
  accelerator.save_model(second, folder.path());
  CHECK(SafetensorsModel{folder.path()}.read("a").as<float>()[0] == 5);
  GradientReducer foreign{ProcessGroup::single(), {}};
  CHECK_THAT(refusal([&] { accelerator.save_model(foreign, folder.path()); }),
             Catch::Contains("isn't a prepared one"));
}

TEST_CASE("master copies of 16-bit parameters follow a model that is loaded",
          "[runtime][training]") {
  const TestFolder folder;
  Accelerator accelerator{ProcessGroup::single()};
  std::vector<BFloat16> w(4, BFloat16{1.0F});
  GradientReducer& reducer = accelerator.prepare_model({{"w", TensorView{std::span{w}}, {}}});
  Sgd optimizer{reducer, {.learning_rate = 1}};
  accelerator.prepare(optimizer);
  accelerator.save_model(folder.path());
  const auto step = [&] {
    accelerator.backward([&](double) {
      for (auto& gradient : std::span{static_cast<BFloat16*>(reducer.gradient(0).data), 4})
        gradient = BFloat16{1.0F};
      reducer.ready(0);
    });
    accelerator.step(optimizer);
  };
  step();
  step();
  REQUIRE(static_cast<float>(w[0]) == -1);
  accelerator.load_model(folder.path());
  CHECK(static_cast<float>(w[0]) == 1);
  step();
  CHECK(static_cast<float>(w[0]) == 0);
}
