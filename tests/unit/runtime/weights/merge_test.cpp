#include "runtime/weights/merge.hpp"

#include "runtime/checkpoint/safetensors_format.hpp"
#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <acc/safetensors.hpp>
#include <csignal>

namespace acc::weights {

using namespace acc::testing;
using acc::runtime::Error;

namespace {

Merged merged(const fs::path& from, MergeOptions options, const std::string& part = kModelPart) {
  return merge(open_source(from, part), options, [] {});
}

std::string refusal_of(const fs::path& from, const MergeOptions& options) {
  try {
    [[maybe_unused]] const auto done = merged(from, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

MergeOptions into(const fs::path& folder) {
  MergeOptions options;
  options.folder = folder;
  return options;
}

/// A model of several MiB in types of several sizes, with a buffer.
struct Model {
  std::vector<float> first = std::vector<float>(700'000, 1.5F);
  std::vector<BFloat16> second = std::vector<BFloat16>(800'001, BFloat16{2.0F});
  std::vector<std::int64_t> seen{42};
  std::vector<float> nothing;

  [[nodiscard]] std::vector<NamedTensor> tensors() {
    return {{"z.weight", TensorView{std::span{first}, {700, 1000}}},
            {"a.weight", std::span{second}},
            {"e.weight", TensorView{std::span{nothing}, {0, 7}}},
            {"a.seen", TensorView{std::span{seen}, {}}}};
  }
  /// As save_state() stores it: the last one is a buffer.
  void save(const fs::path& path, std::uint64_t max_shard_bytes = std::uint64_t{1} << 40) {
    auto named = tensors();
    CheckpointState state;
    for (auto& tensor : named) {
      const auto& view = tensor.view;
      state.tensors.push_back(
          {tensor.name, TensorView{const_cast<void*>(view.data), view.dtype, view.shape},
           Placement::replicated, tensor.name == "a.seen" ? "buffers" : "model"});
    }
    on_ranks(1, [&](ProcessGroup& group) {
      auto how = quiet_options(path.parent_path());
      how.max_shard_bytes = max_shard_bytes;
      Checkpointer{group, how}.save_as(path, state);
    });
  }
};

/// A safetensors file with this header.
void put_file(const fs::path& path, std::string header, const std::string& data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() % 256);
  length[1] = static_cast<char>(header.size() / 256);
  put_contents(path, length + header + data);
}
constexpr std::string_view kIndexOfTwo = R"({"metadata":{"total_size":5},"weight_map":{
  "b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"}})";

}  // namespace

TEST_CASE("a merged checkpoint is what save_model() writes, byte for byte", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  for (const std::uint64_t most : {std::uint64_t{1} << 40, std::uint64_t{2'000'000}}) {
    CAPTURE(most);
    const auto name = std::to_string(most);
    fs::create_directory(folder / ("model" + name));
    const auto wanted = save_safetensors_model(folder / ("model" + name), model.tensors(), most,
                                               {{"format", "pt"}});
    auto options = into(folder / ("merged" + name));
    options.max_shard_bytes = most;
    const auto done = merged(folder / "saved", options);
    CHECK(done.files == wanted);
    CHECK(done.tensors == 4);
    CHECK(done.bytes == 2'800'000 + 1'600'002 + 8);
    CHECK(names_in(options.folder) == names_in(folder / ("model" + name)));
    for (const auto& file : wanted)
      CHECK((contents_of(options.folder / file) == contents_of(folder / ("model" + name) / file)));
  }
}

TEST_CASE("a checkpoint whose model is in several files is merged to the same",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "one");
  model.save(folder / "several", 2'000'000);
  CHECK(fs::exists(folder / "several" / "model-00001-of-00002.safetensors"));
  for (const auto* name : {"one", "several"})
    CHECK(refusal_of(folder / name, into(folder / (name + std::string{"-out"}))).empty());
  CHECK((contents_of(folder / "one-out" / "model.safetensors") ==
         contents_of(folder / "several-out" / "model.safetensors")));
}

TEST_CASE("pieces of several ranks become whole tensors", "[runtime][weights]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 3, 5, 7);
  const auto done = merged(folder / "checkpoint_5", into(folder / "out"), "optimizer");
  CHECK(done.tensors == 3);
  const SafetensorsFile file{folder / "out" / "model.safetensors"};
  const SmallRun whole{0, 1, 7};
  std::vector<float> momentum(SmallRun::kMomentum);
  file.read("momentum", std::span{momentum});
  CHECK((momentum == whole.momentum));
  std::vector<BFloat16> second(SmallRun::kRows * 3);
  file.read("second", TensorView{std::span{second}, {SmallRun::kRows, 3}});
  CHECK((second == whole.second));
}

TEST_CASE("a model in several files becomes one, with types that are not ours",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "model");
  put_file(folder / "model" / "model-00001-of-00002.safetensors",
           R"({"b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]}})", "xyz");
  put_file(folder / "model" / "model-00002-of-00002.safetensors",
           R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\1");
  put_contents(folder / "model" / "model.safetensors.index.json", std::string{kIndexOfTwo});
  const auto done = merged(folder / "model", into(folder / "out"));
  CHECK(done.files == std::vector<std::string>{"model.safetensors"});
  const SafetensorsFile file{folder / "out" / "model.safetensors"};
  REQUIRE(file.entries().size() == 2);
  CHECK(file.find("b")->type == "F8_E4M3");
  CHECK(file.find("a")->type == "BOOL");
  CHECK(contents_of(folder / "out" / "model.safetensors").ends_with("xyz\1\1"));
}

TEST_CASE("the metadata of a model's files was dropped", "[runtime][weights]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "model");
  const auto first = folder / "model" / "model-00001-of-00002.safetensors";
  const auto second = folder / "model" / "model-00002-of-00002.safetensors";
  put_file(first, R"({"__metadata__":{"format":"mlx","step":"7"},
                      "b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
           "xyz");
  put_file(second, R"({"__metadata__":{"quantization":"q4","step":"8"},
                       "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           "a");
  put_contents(folder / "model" / "model.safetensors.index.json", std::string{kIndexOfTwo});
  const auto source = open_source(folder / "model");
  REQUIRE(source.notes.size() == 1);
  CHECK(source.notes[0] == "metadata 'step' is '7' in '" + first.native() + "' and '8' in '" +
                               second.native() + "': the first one is kept");
  for (const std::uint64_t most : {1000, 2}) {
    CAPTURE(most);
    auto options = into(folder / std::to_string(most));
    options.max_shard_bytes = most;
    for (const auto& name : merged(folder / "model", options).files)
      if (name.ends_with(".safetensors"))
        CHECK(SafetensorsFile{options.folder / name}.metadata() ==
              TensorMetadata{{"format", "mlx"}, {"quantization", "q4"}, {"step", "7"}});
  }
}

TEST_CASE("a model that is there is replaced by --overwrite alone", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  fs::create_directory(folder / "out");
  put_contents(folder / "out" / "model-00001-of-00003.safetensors", "old");
  put_contents(folder / "out" / "notes.txt", "mine");
  auto options = into(folder / "out");
  CHECK(refusal_of(folder / "saved", options).find("is there already: --overwrite") !=
        std::string::npos);
  CHECK(names_in(folder / "out") ==
        std::vector<std::string>{"model-00001-of-00003.safetensors", "notes.txt"});
  options.overwrites = true;
  CHECK(refusal_of(folder / "saved", options).empty());
  CHECK(names_in(folder / "out") == std::vector<std::string>{"model.safetensors", "notes.txt"});
}

TEST_CASE("the checkpoint itself is no place for the output", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  auto options = into(folder / "saved");
  options.overwrites = true;
  CHECK(refusal_of(folder / "saved", options).find("is the folder that is read") !=
        std::string::npos);
  options.folder = folder / "saved" / "inner";
  options.removes_source = true;
  CHECK(refusal_of(folder / "saved", options).find("would remove") != std::string::npos);
  CHECK(
      refusal_of(folder / "saved", into(folder / "x.safetensors")).find("leave the file's name") !=
      std::string::npos);
  CHECK(open_source(folder / "saved").tensors.size() == 4);
}

TEST_CASE("another checkpoint couldn't be loaded after --overwrite", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  model.save(folder / "other");
  auto options = into(folder / "other");
  options.overwrites = true;
  CHECK_THAT(refusal_of(folder / "saved", options),
             Catch::Contains((folder / "other").native() + "' is a checkpoint"));
  CHECK(open_source(folder / "other").tensors.size() == 4);
}

TEST_CASE("a checkpoint is removed once its model is on disk", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  auto options = into(folder / "out");
  options.removes_source = true;
  CHECK(refusal_of(folder / "saved", options).empty());
  CHECK(names_in(folder.path()) == std::vector<std::string>{"out"});
}

TEST_CASE("of a folder with a model only the model's files are removed", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  fs::create_directory(folder / "shards");
  [[maybe_unused]] const auto names =
      save_safetensors_model(folder / "shards", model.tensors(), 2'000'000);
  put_contents(folder / "shards" / "config.json", "{}");
  auto options = into(folder / "out");
  options.removes_source = true;
  CHECK(refusal_of(folder / "shards", options).empty());
  CHECK(names_in(folder / "shards") == std::vector<std::string>{"config.json"});
}

TEST_CASE("an output that was a link to the only copy was removed with the source",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  fs::create_directory(folder / "src");
  fs::create_directory(folder / "out");
  save_safetensors(folder / "src" / "model.safetensors", model.tensors());
  const auto before = contents_of(folder / "src" / "model.safetensors");
  auto options = into(folder / "out");
  options.overwrites = options.removes_source = true;
  SECTION("of the output to the source") {
    fs::create_symlink("../src/model.safetensors", folder / "out" / "model.safetensors");
  }
  SECTION("of the source to the output") {
    fs::rename(folder / "src" / "model.safetensors", folder / "out" / "model.safetensors");
    fs::create_symlink("../out/model.safetensors", folder / "src" / "model.safetensors");
  }
  CHECK_THAT(refusal_of(folder / "src", options), Catch::Contains("which is read"));
  options.removes_source = false;
  CHECK_THAT(refusal_of(folder / "src", options), Catch::Contains("which is read"));
  CHECK((contents_of(folder / "src" / "model.safetensors") == before));
}

TEST_CASE("an output that was a link into the checkpoint was removed with it",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  fs::create_directory(folder / "out");
  fs::create_symlink("../saved/merged.safetensors", folder / "out" / "model.safetensors");
  auto options = into(folder / "out");
  options.overwrites = options.removes_source = true;
  CHECK_THAT(refusal_of(folder / "saved", options), Catch::Contains("would remove"));
  CHECK(open_source(folder / "saved").tensors.size() == 4);
}

TEST_CASE("a tensor that the index doesn't name was removed without a copy", "[runtime][weights]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "model");
  put_file(folder / "model" / "model-00001-of-00002.safetensors",
           R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "xyz");
  put_file(folder / "model" / "model-00002-of-00002.safetensors",
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
               "forgotten":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           "ab");
  put_contents(folder / "model" / "model.safetensors.index.json", std::string{kIndexOfTwo});
  const auto source = open_source(folder / "model");
  REQUIRE(source.notes.size() == 1);
  CHECK_THAT(source.notes[0], Catch::StartsWith("tensor 'forgotten' of '"));
  auto options = into(folder / "out");
  options.removes_source = true;
  CHECK_THAT(refusal_of(folder / "model", options),
             Catch::StartsWith("tensor 'forgotten' of '") && Catch::Contains("only copy"));
  CHECK(!fs::exists(folder / "out"));
  CHECK(names_in(folder / "model").size() == 3);
  options.removes_source = false;
  CHECK(refusal_of(folder / "model", options).empty());
}

TEST_CASE("of a checkpoint that was named by a link only the link was removed",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  fs::create_directory(folder / "run");
  fs::create_directory(folder / "run" / "shards");
  model.save(folder / "run" / "saved");
  [[maybe_unused]] const auto names =
      save_safetensors_model(folder / "run" / "shards", model.tensors(), 2'000'000);
  for (const auto* name : {"saved", "shards"}) {
    CAPTURE(name);
    fs::create_directory_symlink(fs::path{"run"} / name, folder / "latest");
    auto options = into(folder / "out");
    options.overwrites = options.removes_source = true;
    CHECK(refusal_of(folder / "latest", options).empty());
    CHECK(!fs::exists(folder / "run" / name));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"out", "run"});
  }
}

TEST_CASE("a damaged checkpoint is told by file and byte, and the output is as before",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  const auto file = folder / "saved" / "model.safetensors";
  flip(file, 3'000'000, 1);
  const auto said = refusal_of(folder / "saved", into(folder / "out"));
  CAPTURE(said);
  CHECK(said.starts_with("'" + file.native() +
                         "': bytes 2097152 to 3145727 aren't those that were written"));
  CHECK(names_in(folder / "out").empty());
  fs::resize_file(file, 3'000'000);
  CHECK(refusal_of(folder / "saved", into(folder / "out")).find("3000000 bytes, ") !=
        std::string::npos);
}

TEST_CASE("whatever fails on the disk, the output is the old or the new one",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  const auto source = open_source(folder / "saved");
  auto options = into(folder / "out");
  options.overwrites = true;
  std::size_t operations = 0;
  {
    WatchedFileOps counting{[](const FileEvent&) {}};
    [[maybe_unused]] const auto done = merge(
        source, options, [] {}, counting);
    operations = counting.count();
  }
  const auto whole = contents_of(folder / "out" / "model.safetensors");
  REQUIRE(operations > 5);
  for (std::size_t failing = 1; failing <= operations; ++failing) {
    put_contents(folder / "out" / "model.safetensors", "old");
    WatchedFileOps ops{[&](const FileEvent& event) {
      if (event.number == failing) throw Error{ErrorCode::system, "the disk failed"};
    }};
    bool failed = false;
    try {
      [[maybe_unused]] const auto done = merge(
          source, options, [] {}, ops);
    } catch (const Error&) {
      failed = true;
    }
    CAPTURE(failing, failed);
    const auto now = contents_of(folder / "out" / "model.safetensors");
    CHECK((now == "old" || now == whole));
    // A file that couldn't be renamed is removed by the next run.
    for (const auto& name : names_in(folder / "out"))
      CHECK((name == "model.safetensors" || name.starts_with(".tmp-acc.")));
  }
}

TEST_CASE("a signal in the middle leaves nothing behind", "[runtime][weights]") {
  const TemporaryFolder folder;
  Model model;
  model.save(folder / "saved");
  int blocks = 0;
  const auto stop = [&] {
    if (++blocks == 3) throw Stopped{SIGINT};
  };
  CHECK_THROWS_AS(merge(open_source(folder / "saved"), into(folder / "out"), stop), Stopped);
  CHECK(names_in(folder / "out").empty());
}

}  // namespace acc::weights
