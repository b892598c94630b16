#include "runtime/checkpoint/manifest.hpp"

#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <zlib.h>

#include <acc/checkpoint.hpp>
#include <array>
#include <cstdio>
#include <random>

using namespace acc::testing;
using namespace acc::runtime::checkpoint;
using acc::runtime::Error;
using nlohmann::json;

namespace {

Manifest sample() {
  Manifest manifest;
  manifest.number = 12;
  manifest.ranks = 2;
  manifest.files = {{"a.safetensors", kBlock + 1, {0, 0xffffffff}}, {"state.json", 2, {7}}};
  manifest.tensors = {
      {{"m", "optimizer", DType::bf16, {5, 2}, Placement::sharded},
       {{"a.safetensors", 2}, {"a.safetensors", 3}}},
      {{"s", "model", DType::i64, {}, Placement::replicated}, {{"a.safetensors", 1}}}};
  return manifest;
}

/// With a checksum that is right for it.
std::string sealed(const json& body) {
  const auto text = body.dump();
  std::array<char, 9> sum{};
  std::snprintf(sum.data(), sum.size(), "%08lx",
                ::crc32(0, reinterpret_cast<const unsigned char*>(text.data()),
                        static_cast<unsigned>(text.size())));
  return json{{"crc32", sum.data()}, {"manifest", body}}.dump();
}

std::string refusal(std::string_view text) {
  try {
    [[maybe_unused]] const auto manifest = parse_manifest(text, "m.json");
    return {};
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt);
    return error.what();
  }
}

}  // namespace

TEST_CASE("a manifest is read as it was written", "[runtime][checkpoint]") {
  const auto text = to_text(sample());
  const auto again = parse_manifest(text, "m.json");
  CHECK(to_text(again) == text);
  CHECK(again.number == 12);
  CHECK(again.files.at(0).crc32.at(1) == 0xffffffff);
  CHECK(again.tensors.at(0).pieces.at(1).rows == 3);
  CHECK(again.tensors.at(1).facts.shape.empty());
}

TEST_CASE("each rule of a manifest is held", "[runtime][checkpoint]") {
  const auto good = json::parse(to_text(sample()))["manifest"];
  REQUIRE(refusal(sealed(good)).empty());
  const std::vector<std::tuple<std::string, json, std::string>> cases{
      {"/format", "other", "isn't the manifest"},
      {"/version", 2, "has the format 2"},
      {"/version", -1, "out of range"},
      {"/number", -1, "out of range"},
      {"/number", 1.5, "out of range"},
      {"/ranks", 0, "no ranks"},
      {"/ranks", 4294967296, "out of range"},
      {"/files", 7, ""},
      {"/files/0/name", "../a", "no name of a file"},
      {"/files/0/name", "state.json", "is there twice"},
      {"/files/0/bytes", 5, "a checksum for each block"},
      {"/files/0/bytes", 18446744073709551615ULL, "out of range"},
      {"/files/0/crc32", "0000000g00000000", "isn't hexadecimal"},
      {"/files/0/crc32", "+000000100000000", "isn't hexadecimal"},
      {"/files/0/crc32", "0", "a checksum for each block"},
      {"/files/0/crc32", nullptr, "it isn't in the format of a manifest: "},
      {"/tensors/0/dtype", "F8_E4M3", "unknown dtype"},
      {"/tensors/0/shape", {-5, 2}, "out of range"},
      {"/tensors/0/shape", {6, 2}, "pieces of 5 rows"},
      {"/tensors/0/pieces", json::array(), "pieces of 0 rows"},
      {"/tensors/0/pieces/0/file", "b", "isn't among the files"},
      {"/tensors/1/name", nullptr, ""},
  };
  for (const auto& [where, value, words] : cases) {
    INFO(where << " " << value);
    auto bad = good;
    bad[json::json_pointer{where}] = value;
    const auto told = refusal(sealed(bad));
    CHECK_FALSE(told.empty());
    CHECK_THAT(told, Catch::Contains(words) && Catch::StartsWith("'m.json': "));
  }
  auto twice = good;
  twice["tensors"][1] = twice["tensors"][0];
  CHECK_THAT(refusal(sealed(twice)), Catch::Contains("'m' is there twice"));
  CHECK_THAT(refusal(to_text(sample()).replace(30, 1, "x")), Catch::Contains("'m.json': "));
}

TEST_CASE("any bytes are a manifest or an error", "[runtime][checkpoint]") {
  const auto good = json::parse(to_text(sample()))["manifest"].dump();
  std::mt19937 random{11};
  for (int round = 0; round < 3000; ++round) {
    auto damaged = good;
    for (auto count = 1 + random() % 3; count > 0; --count) {
      const auto at = random() % damaged.size();
      if (random() % 2 == 0) {
        damaged[at] = static_cast<char>(' ' + random() % 95);
      } else {
        damaged.erase(at, 1 + random() % 4);
      }
    }
    refusal(damaged);
    const auto body = json::parse(damaged, nullptr, false);
    if (!body.is_discarded()) refusal(sealed(body));
  }
  CHECK_THAT(refusal(""), Catch::Contains("torn"));
  for (const auto* other : {"null", "7", "[]", "{}", R"({"a": 1})", R"({"manifest": {}})",
                            R"({"manifest": {}, "crc32": 7})"})
    CHECK(refusal(other) == "'m.json': it isn't the manifest of a checkpoint");
  CHECK_FALSE(refusal(std::string(100'000, '[')).empty());
}

TEST_CASE("failures travel between ranks", "[runtime][checkpoint]") {
  CHECK(parse_failure(to_text(std::optional<Error>{})) == std::nullopt);
  const std::optional<Error> failure{Error{ErrorCode::corrupt, "a b  c\n", {3}, "x"}};
  const auto again = parse_failure(to_text(failure));
  REQUIRE(again.has_value());
  CHECK(again->code() == ErrorCode::corrupt);
  CHECK(std::string{again->what()} == "a b  c\n");
  CHECK(again->ranks() == std::vector{3});
  for (const auto* foreign : {"x", "1", "1 ", "99 1 x", "-1 1 x", "1 x y"}) {
    REQUIRE(parse_failure(foreign).has_value());
    CHECK(parse_failure(foreign)->code() == ErrorCode::system);
  }
  Report report;
  report.failure = failure;
  report.files = sample().files;
  report.tensors = sample().tensors;
  CHECK(to_text(parse_report(to_text(report))) == to_text(report));
  CHECK_THROWS_AS(parse_report("{}"), Error);
}
