#include "runtime/checkpoint/manifest.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <nlohmann/json.hpp>

#include <zlib.h>

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <set>

namespace acc::runtime::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kHexDigits = 8;

/// A rule of the format that the text breaks.
struct Broken {
  std::string what;
};
void require(bool holds, const std::string& what) {
  if (!holds) throw Broken{what};
}

std::uint32_t unhex(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(error == std::errc{} && end == text.data() + text.size(), "a checksum isn't hexadecimal");
  return value;
}
std::uint32_t checksum(std::string_view text) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()));
}

std::uint64_t number(const json& value, std::uint64_t most) {
  require(value.is_number_unsigned() && value.get<std::uint64_t>() <= most,
          "a number is missing or out of range");
  return value.get<std::uint64_t>();
}
std::int64_t extent(const json& value) {
  return static_cast<std::int64_t>(number(value, std::numeric_limits<std::int64_t>::max()));
}

json json_of(const FileRecord& file) {
  std::string sums;
  for (const auto sum : file.crc32) sums += hex(sum);
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32", std::move(sums)}};
}

FileRecord file_of(const json& value) {
  FileRecord file;
  file.name = value.at("name").get<std::string>();
  require(!file.name.empty() && file.name != "." && file.name != ".." &&
              file.name.find_first_of(std::string_view{"/\0", 2}) == std::string::npos,
          "'" + printable(file.name) + "' is no name of a file beside it");
  file.bytes = number(value.at("bytes"), std::numeric_limits<std::int64_t>::max());
  const auto& sums = value.at("crc32").get_ref<const std::string&>();
  require(sums.size() % kHexDigits == 0 && sums.size() / kHexDigits == blocks_of(file),
          "'" + printable(file.name) + "' hasn't a checksum for each block");
  for (std::size_t i = 0; i < sums.size(); i += kHexDigits) {
    file.crc32.push_back(unhex(std::string_view{sums}.substr(i, kHexDigits)));
  }
  return file;
}

json json_of(const TensorRecord& tensor) {
  auto pieces = json::array();
  for (const auto& piece : tensor.pieces) {
    pieces.push_back({{"file", piece.file}, {"rows", piece.rows}});
  }
  return {{"name", tensor.facts.name},
          {"part", tensor.facts.part},
          {"dtype", safetensors::type_of(tensor.facts.dtype)},
          {"shape", tensor.facts.shape},
          {"sharded", tensor.facts.placement == Placement::sharded},
          {"pieces", std::move(pieces)}};
}

TensorRecord tensor_of(const json& value) {
  TensorRecord tensor;
  tensor.facts.name = value.at("name").get<std::string>();
  tensor.facts.part = value.at("part").get<std::string>();
  const auto who = "tensor '" + printable(tensor.facts.name) + "'";
  const auto dtype = safetensors::dtype_of_type(value.at("dtype").get_ref<const std::string&>());
  require(dtype.has_value(), who + " has an unknown dtype");
  tensor.facts.dtype = *dtype;
  for (const auto& one : value.at("shape")) tensor.facts.shape.push_back(extent(one));
  tensor.facts.placement =
      value.at("sharded").get<bool>() ? Placement::sharded : Placement::replicated;
  std::uint64_t rows = 0;
  for (const auto& one : value.at("pieces")) {
    tensor.pieces.push_back({one.at("file").get<std::string>(), extent(one.at("rows"))});
    require(
        !__builtin_add_overflow(rows, static_cast<std::uint64_t>(tensor.pieces.back().rows), &rows),
        who + " has too many rows");
  }
  const auto& shape = tensor.facts.shape;
  require(
      rows == (shape.empty() ? 1 : static_cast<std::uint64_t>(shape.front())),
      who + " has pieces of " + std::to_string(rows) + " rows, but the shape " + to_string(shape));
  return tensor;
}

template <class Record>
json list_of(const std::vector<Record>& records) {
  auto list = json::array();
  for (const auto& record : records) list.push_back(json_of(record));
  return list;
}

void check_names(const Manifest& manifest) {
  std::set<std::string_view> files;
  for (const auto& file : manifest.files) {
    require(files.insert(file.name).second, "'" + printable(file.name) + "' is there twice");
  }
  std::set<std::pair<std::string_view, std::string_view>> tensors;
  for (const auto& tensor : manifest.tensors) {
    const auto who = "tensor '" + printable(tensor.facts.name) + "'";
    require(tensors.emplace(tensor.facts.part, tensor.facts.name).second, who + " is there twice");
    for (const auto& piece : tensor.pieces) {
      require(files.contains(piece.file),
              who + " lies in '" + printable(piece.file) + "', which isn't among the files");
    }
  }
}

/// "[json.exception.out_of_range.403] key 'name' not found": without the bracket.
std::string words_of(const json::exception& error) {
  const std::string_view what = error.what();
  const auto bracket = what.find("] ");
  return printable(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
}

Manifest manifest_of(const json& whole) {
  const bool is_ours = whole.is_object() && whole.contains("manifest") && whole.contains("crc32") &&
                       whole["crc32"].is_string();
  require(is_ours, "it isn't the manifest of a checkpoint");
  const auto& body = whole.at("manifest");
  const auto sum = checksum(body.dump());
  require(hex(sum) == whole.at("crc32").get_ref<const std::string&>(),
          "it isn't what was written (checksum " + hex(sum) + ")");
  require(body.at("format") == "acc-checkpoint", "it isn't the manifest of a checkpoint");
  const auto version = number(body.at("version"), std::numeric_limits<int>::max());
  require(version == kVersion, "it has the format " + std::to_string(version) +
                                   ", and this version of the library reads " +
                                   std::to_string(kVersion));
  Manifest manifest;
  manifest.number = number(body.at("number"), std::numeric_limits<std::uint64_t>::max());
  manifest.ranks = static_cast<int>(number(body.at("ranks"), std::numeric_limits<int>::max()));
  require(manifest.ranks > 0, "it has no ranks");
  for (const auto& one : body.at("files")) manifest.files.push_back(file_of(one));
  for (const auto& one : body.at("tensors")) manifest.tensors.push_back(tensor_of(one));
  check_names(manifest);
  return manifest;
}

}  // namespace

std::string rank_state_name(int rank) { return "rank_" + std::to_string(rank) + ".json"; }

const FileRecord* Manifest::find(std::string_view file) const noexcept {
  const auto at = std::ranges::find(files, file, &FileRecord::name);
  return at == files.end() ? nullptr : &*at;
}

std::string to_text(const Manifest& manifest) {
  const json body{{"format", "acc-checkpoint"},
                  {"version", kVersion},
                  {"number", manifest.number},
                  {"ranks", manifest.ranks},
                  {"block_bytes", kBlock},
                  {"files", list_of(manifest.files)},
                  {"tensors", list_of(manifest.tensors)}};
  const json whole{{"crc32", hex(checksum(body.dump()))}, {"manifest", body}};
  return whole.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, std::string_view file) {
  const auto fail = [&](const std::string& what) -> Error {
    return {ErrorCode::corrupt, "'" + printable(file, 500) + "': " + what};
  };
  try {
    const auto whole = json::parse(text, nullptr, false);
    if (whole.is_discarded()) throw fail("is no JSON: it is torn or isn't a manifest");
    return manifest_of(whole);
  } catch (const Broken& broken) {
    throw fail(broken.what);
  } catch (const json::exception& error) {
    throw fail("it isn't in the format of a manifest: " + words_of(error));
  }
}

std::string to_text(const std::optional<Error>& failure) {
  if (!failure) return {};
  const auto rank = failure->ranks().empty() ? -1 : failure->ranks().front();
  return std::to_string(static_cast<int>(failure->code())) + " " + std::to_string(rank) + " " +
         failure->what();
}

std::optional<Error> parse_failure(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto first = std::min(text.find(' '), text.size());
  const auto second = std::min(text.find(' ', first + 1), text.size());
  const auto code = parse_number<int>(text.substr(0, first));
  const auto rank =
      first < second ? parse_number<int>(text.substr(first + 1, second - first - 1)) : std::nullopt;
  if (!code || !rank || *code < 0 || *code > static_cast<int>(ErrorCode::nccl)) {
    return Error{ErrorCode::system, "a rank failed: " + printable(text)};
  }
  std::vector<int> ranks;
  if (*rank >= 0) ranks.push_back(*rank);
  return Error{static_cast<ErrorCode>(*code),
               std::string{text.substr(std::min(second + 1, text.size()))}, std::move(ranks),
               "checkpoint"};
}

std::string to_text(const Report& report) {
  const json value{{"failure", to_text(report.failure)},
                   {"files", list_of(report.files)},
                   {"tensors", list_of(report.tensors)}};
  // A path need not be UTF-8; invalid bytes are replaced.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Report parse_report(std::string_view text) {
  try {
    Report report;
    const auto value = json::parse(text);
    report.failure = parse_failure(value.at("failure").get<std::string>());
    for (const auto& one : value.at("files")) report.files.push_back(file_of(one));
    for (const auto& one : value.at("tensors")) report.tensors.push_back(tensor_of(one));
    return report;
  } catch (const Broken& broken) {
    throw Error{ErrorCode::corrupt, "report of a rank: " + broken.what};
  } catch (const json::exception& error) {
    throw Error{ErrorCode::corrupt, "report of a rank: " + words_of(error)};
  }
}

std::string join_texts(const StateTexts& texts) {
  auto all = ordered_json::object();
  for (const auto& [name, text] : texts) {
    auto value = ordered_json::parse(text, nullptr, false);
    if (value.is_discarded()) {
      throw Error{ErrorCode::invalid_argument,
                  "state '" + printable(name) + "' is no JSON text: " + printable(text, 60)};
    }
    all[name] = std::move(value);
  }
  try {
    return all.dump() + "\n";
  } catch (const json::exception&) {
    throw Error{ErrorCode::invalid_argument, "the name of a state isn't UTF-8"};
  }
}

StateTexts split_texts(std::string_view text, std::string_view file) {
  const auto all = ordered_json::parse(text, nullptr, false);
  if (!all.is_object()) {
    throw Error{ErrorCode::corrupt, "'" + printable(file, 500) + "' is no JSON object"};
  }
  StateTexts texts;
  for (const auto& [name, value] : all.items()) texts.emplace(name, value.dump());
  return texts;
}

}  // namespace acc::runtime::checkpoint
