#include "runtime/weights/command.hpp"

#include <catch2/catch.hpp>

namespace acc::weights {

using Words = std::vector<std::string>;

static std::string complaint_of(const Words& words) {
  const auto command = parse_merge(words);
  return command.complaints.empty() ? "" : command.complaints.front();
}

TEST_CASE("a line for accelerate merge-weights means the same here", "[runtime][weights]") {
  const auto command = parse_merge(Words{"ckpt/", "out", "--remove_checkpoint_dir"});
  CHECK(command.complaints.empty());
  CHECK(command.from == "ckpt");
  CHECK(command.options.folder == "out");
  CHECK(command.options.removes_source);
  CHECK_FALSE(command.options.overwrites);
  CHECK(command.part == "model");
  CHECK(parse_merge(Words{"a", "b", "--max-shard-size=5GB"}).options.max_shard_bytes ==
        5'000'000'000);
  CHECK(parse_merge(Words{"--", "--a", "b"}).from == "--a");
}

TEST_CASE("pickles aren't written, and a sentence says why", "[runtime][weights]") {
  CHECK(complaint_of({"a", "b", "--unsafe_serialization"}).find("runs whatever code is in it") !=
        std::string::npos);
}

TEST_CASE("words of merge-weights that can't be used are told", "[runtime][weights]") {
  CHECK(complaint_of({}) == "CHECKPOINT and OUTPUT are missing");
  CHECK(complaint_of({"a"}).starts_with("OUTPUT is missing"));
  CHECK(complaint_of({"a", "b", "c"}).find("'c' is a third") != std::string::npos);
  CHECK(complaint_of({"a", "b", "--overwrit"}) ==
        "unknown word '--overwrit' (did you mean --overwrite?)");
  CHECK(complaint_of({"a", "b", "--max_shard_size", "big"}).starts_with("--max_shard_size: 'big'"));
  CHECK(complaint_of({"a", "b", "--part"}) == "--part needs a value");
  CHECK(complaint_of({"a", "b", "--overwrite=1"}) == "--overwrite takes no value");
}

TEST_CASE("a line for accelerate estimate-memory means the same here", "[runtime][weights]") {
  const auto command = parse_estimate(Words{"model", "--dtypes", "float32", "int4", "other"});
  CHECK(command.complaints.empty());
  CHECK(command.paths == Words{"model", "other"});
  CHECK(command.dtypes == Words{"float32", "int4"});
  CHECK(parse_estimate(Words{"x"}).dtypes == Words{"float32", "float16", "int8", "int4"});
  CHECK(parse_estimate(Words{"x", "--dtypes=int8,int4"}).dtypes == Words{"int8", "int4"});
}

TEST_CASE("words of estimate-memory that can't be used are told", "[runtime][weights]") {
  const auto said = [](const Words& words) { return parse_estimate(words).complaints.at(0); };
  CHECK(said({}).starts_with("PATH is missing"));
  CHECK(said({"x", "--dtypes", "fp8"}) ==
        "--dtypes 'fp8': expected float32, float16, bfloat16, int8 or int4");
  for (const auto& words :
       {Words{"x", "--dtypes="}, Words{"x", "--dtypes", ""}, Words{"x", "--dtypes=int8,"}})
    CHECK(said(words) == "--dtypes '': expected float32, float16, bfloat16, int8 or int4");
  CHECK(parse_estimate(Words{"x", "--dtypes"}).complaints == Words{"--dtypes needs a value"});
  CHECK(said({"x", "--library_name", "timm"}).find("nothing is downloaded") != std::string::npos);
  CHECK(said({"x", "--jsn"}) == "unknown word '--jsn' (did you mean --json?)");
}

}  // namespace acc::weights
