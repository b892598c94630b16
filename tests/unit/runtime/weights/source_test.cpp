#include "runtime/weights/source.hpp"

#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>

namespace acc::weights {

using namespace acc::testing;

static std::string refusal_of(const fs::path& path, const std::string& part = kModelPart) {
  try {
    [[maybe_unused]] const auto source = open_source(path, part);
    return "";
  } catch (const runtime::Error& error) {
    return error.what();
  }
}

TEST_CASE("what another tool must read is told with that tool's name", "[runtime][weights]") {
  const TemporaryFolder folder;
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };
  const auto sharded = folder / "pytorch_model_fsdp_0";
  fs::create_directory(sharded);
  put_contents(sharded / ".metadata", "\x80\x04");
  put_contents(sharded / "__0_0.distcp", "PK");
  CHECK(has(refusal_of(sharded), "accelerate merge-weights " + sharded.native()));
  CHECK(has(refusal_of(folder.path()), "accelerate merge-weights " + sharded.native()));
  CHECK(has(refusal_of(sharded / "__0_0.distcp"), "dcp_to_torch"));

  const auto zero = folder / "zero";
  fs::create_directory(zero);
  put_contents(zero / "zero_to_fp32.py", "");
  CHECK(has(refusal_of(zero), "DeepSpeed"));

  put_contents(folder / "pytorch_model.bin", "PK");
  CHECK(has(refusal_of(folder / "pytorch_model.bin"), "is a pickle"));

  const auto empty = folder / "empty";
  fs::create_directory(empty);
  CHECK(has(refusal_of(empty), "no checkpoint of ours"));
  CHECK(has(refusal_of(folder / "none"), "No such file"));
}

TEST_CASE("a folder of checkpoints is answered with the newest", "[runtime][weights]") {
  const TemporaryFolder project;
  save_seed(project / "checkpoints", 1, 3, 1);
  save_seed(project / "checkpoints", 1, 12, 1);
  const auto newest = (project / "checkpoints" / "checkpoint_12").native();
  for (const auto& path : {project.path(), project / "checkpoints"})
    CHECK(refusal_of(path).find("name one, as the newest: " + newest) != std::string::npos);
}

TEST_CASE("a part that a checkpoint hasn't is answered with those that it has",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 1);
  const auto path = folder / "checkpoint_1";
  CHECK(refusal_of(path, "modle").find("has no part 'modle'; it has model, optimizer") !=
        std::string::npos);
  const auto source = open_source(path, "optimizer");
  CHECK(source.is_checkpoint);
  CHECK(source.tensors.size() == 3);
  CHECK(open_source(path / "").tensors.size() == 1);  // with a slash behind it
}

TEST_CASE("a checkpoint without a manifest was never complete", "[runtime][weights]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 1, 1);
  const auto manifest = folder / "checkpoint_1" / "manifest.json";
  auto text = contents_of(manifest);
  put_contents(manifest, text.substr(0, text.size() / 2));
  CHECK(refusal_of(folder / "checkpoint_1").find("torn") != std::string::npos);
  fs::remove(folder / "checkpoint_1" / "model.safetensors");
  put_contents(manifest, text);
  CHECK(refusal_of(folder / "checkpoint_1").find("isn't there") != std::string::npos);
}

}  // namespace acc::weights
