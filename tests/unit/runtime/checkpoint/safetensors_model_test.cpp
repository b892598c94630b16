#include "runtime/checkpoint/model_files.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/safetensors.hpp>
#include <set>

using namespace acc::testing;
using acc::runtime::Error;
using nlohmann::json;

namespace {

struct Model {
  std::vector<float> a = std::vector<float>(10, 1), b = std::vector<float>(20, 2),
                     c = std::vector<float>(30, 3), d = std::vector<float>(5, 4);
  [[nodiscard]] std::vector<NamedTensor> tensors() {
    return {{"a", std::span{a}}, {"b", std::span{b}}, {"c", std::span{c}}, {"d", std::span{d}}};
  }
};

std::vector<std::vector<std::string>> names_of(
    const std::vector<std::vector<NamedTensor>>& groups) {
  std::vector<std::vector<std::string>> names;
  for (const auto& group : groups) {
    names.emplace_back();
    for (const auto& one : group) names.back().push_back(one.name);
  }
  return names;
}

}  // namespace

TEST_CASE("tensors are grouped in their order, none above the limit but alone",
          "[runtime][safetensors]") {
  Model model;  // 40, 80, 120 and 20 bytes
  using Groups = std::vector<std::vector<std::string>>;
  const auto split = [&](std::uint64_t most) {
    return names_of(acc::runtime::safetensors::split_by_size(model.tensors(), most));
  };
  CHECK(split(260) == Groups{{"a", "b", "c", "d"}});
  CHECK(split(259) == Groups{{"a", "b", "c"}, {"d"}});
  CHECK(split(120) == Groups{{"a", "b"}, {"c"}, {"d"}});
  CHECK(split(100) == Groups{{"a"}, {"c"}, {"b", "d"}});
  CHECK(split(1) == Groups{{"a"}, {"b"}, {"c"}, {"d"}});
  CHECK(names_of(acc::runtime::safetensors::split_by_size({}, 10)) == Groups{{}});
}

TEST_CASE("a small model is one file, a large one several with an index",
          "[runtime][safetensors]") {
  const TemporaryFolder folder;
  Model model;
  CHECK(save_safetensors_model(folder.path(), model.tensors()) ==
        std::vector<std::string>{"model.safetensors"});
  CHECK(SafetensorsModel{folder.path()}.files().size() == 1);

  const std::vector<std::string> files{
      "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
      "model-00003-of-00003.safetensors", "model.safetensors.index.json"};
  CHECK(save_safetensors_model(folder.path(), model.tensors(), 120) == files);
  CHECK(names_in(folder.path()) == files);  // the single file is gone: it would be taken for ours
  CHECK(json::parse(contents_of(folder / files.back())) ==
        json::parse(R"({"metadata":{"total_size":260},"weight_map":{
          "a":"model-00001-of-00003.safetensors","b":"model-00001-of-00003.safetensors",
          "c":"model-00002-of-00003.safetensors","d":"model-00003-of-00003.safetensors"}})"));

  for (const auto& path : {folder.path(), folder / files.back()}) {
    const SafetensorsModel again{path};
    CHECK(again.names() == std::vector<std::string>{"a", "b", "c", "d"});
    CHECK(again.files().size() == 3);
    CHECK(again.read("c") == HostTensor::of(std::span<const float>{model.c}, {30}));
    std::vector<float> b(20);
    again.read("b", std::span{b});
    CHECK(b == model.b);
    CHECK_THROWS_WITH(again.read("e"), Catch::Contains("'e' isn't in it"));
  }

  save_safetensors_model(folder.path(), model.tensors());
  CHECK_FALSE(fs::exists(folder / files.back()));
  CHECK(SafetensorsModel{folder.path()}.files().size() == 1);
}

TEST_CASE("a name that is in two files is refused before anything is written",
          "[runtime][safetensors]") {
  const TemporaryFolder folder;
  Model model;
  auto tensors = model.tensors();
  tensors.push_back(tensors.front());
  CHECK_THROWS_WITH(save_safetensors_model(folder.path(), tensors, 50),
                    Catch::Contains("'a' is there twice"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("an index from elsewhere is not trusted", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  Model model;
  save_safetensors_model(folder.path(), model.tensors(), 120);
  const auto index = folder / "model.safetensors.index.json";
  const auto refusal = [&](std::string_view text) -> std::string {
    put_contents(index, text);
    try {
      const SafetensorsModel opened{folder.path()};
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  CHECK_THAT(refusal("{"), Catch::Contains("weight_map"));
  CHECK_THAT(refusal("[]"), Catch::Contains("weight_map"));
  CHECK_THAT(refusal(R"({"weight_map":[]})"), Catch::Contains("weight_map"));
  CHECK_THAT(refusal(R"({"weight_map":{"a":7}})"), Catch::Contains("no name of a file"));
  for (const auto* name : {"", ".", "..", "../a", "/etc/passwd", "a/b", "a\\u0000b"}) {
    CHECK_THAT(refusal(R"({"weight_map":{"a":")" + std::string{name} + "\"}}"),
               Catch::Contains("no name of a file beside it"));
  }
  CHECK_THAT(refusal(R"({"weight_map":{"a":"gone.safetensors"}})"),
             Catch::Contains("No such file"));
  CHECK_THAT(refusal(R"({"weight_map":{"c":"model-00001-of-00003.safetensors"}})"),
             Catch::Contains("'c' isn't in 'model-00001"));
  CHECK(refusal(R"({"weight_map":{"b":"model-00001-of-00003.safetensors"}})").empty());
}

TEST_CASE("a folder without a model, and what isn't a file, are told", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(SafetensorsModel{folder.path()}, Catch::Contains("no model.safetensors"));
  CHECK_THROWS_WITH(SafetensorsModel{folder / "x"}, Catch::Contains("No such file"));
  CHECK_THROWS_WITH(SafetensorsFile{folder.path()}, Catch::Contains("Is a directory"));
}

namespace {

/// Saves a model of this value, in a process that dies right before its k-th file operation.
/// @return was it killed?
bool save_and_die(const fs::path& folder, float value, std::uint64_t most, std::size_t k) {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    WatchedFileOps files{[k](const FileEvent& event) {
      if (event.number == k) ::kill(::getpid(), SIGKILL);
    }};
    Model model;
    for (auto* one : {&model.a, &model.b, &model.c, &model.d}) one->assign(one->size(), value);
    acc::runtime::checkpoint::save_model_files(files, folder, model.tensors(), most, {}, "model");
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status);
}

/// The value that all tensors have.
float value_in(const fs::path& folder) {
  const SafetensorsModel model{folder};
  std::set<float> values;
  for (const auto& name : model.names()) values.insert(model.read(name).as<float>()[0]);
  REQUIRE(values.size() == 1);
  return *values.begin();
}

}  // namespace

TEST_CASE(
    "a model that is saved over another: killed at any moment it is the old one or the new one",
    "[runtime][safetensors][kill]") {
  struct Sizes {
    std::uint64_t before, after;
  };
  const auto [before, after] = GENERATE(Sizes{120, 120}, Sizes{120, 1000}, Sizes{1000, 120},
                                        Sizes{1000, 1000}, Sizes{120, 150}, Sizes{150, 120});
  int olds = 0, news = 0;
  bool was_killed = true;
  for (std::size_t k = 1; was_killed; ++k) {
    INFO(before << " " << after << " operation " << k);
    REQUIRE(k < 200);
    const TemporaryFolder folder;
    save_and_die(folder.path(), 1, before, 1000);
    was_killed = save_and_die(folder.path(), 2, after, k);
    const float found = value_in(folder.path());
    REQUIRE((found == 1 || found == 2));
    (found == 1 ? olds : news) += 1;
    // Nothing of what the dead one left stays.
    save_and_die(folder.path(), 3, 1000, 1000);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"model.safetensors"});
    CHECK(value_in(folder.path()) == 3);
  }
  CHECK(olds > 3);
  CHECK(news >= 1);
}

TEST_CASE("a list of renames names files of its own folder only", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "in");
  put_contents(folder / "victim", "x");
  put_contents(folder / "in" / ".renames-model.safetensors.index.json",
               R"([["../victim", "../gone"]])");
  CHECK_THROWS_WITH(SafetensorsModel{folder / "in"}, Catch::Contains("holds no model"));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"in", "victim"});
  put_contents(folder / "in" / ".renames-model.safetensors.index.json", "[1]");
  CHECK_THROWS_WITH(SafetensorsModel{folder / "in"}, Catch::Contains("isn't a list of renames"));
}
