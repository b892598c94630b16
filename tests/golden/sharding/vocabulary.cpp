#include "tests/golden/sharding/vocabulary.hpp"

#include "runtime/with_type.hpp"
#include "tests/golden/sharding/row.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::golden {

using namespace acc::runtime;  // NOLINT: its tests

namespace {

constexpr std::array<std::pair<std::string_view, DType>, kDTypes> kTypes{{
    {"int8", DType::i8},
    {"uint8", DType::u8},
    {"int32", DType::i32},
    {"uint32", DType::u32},
    {"int64", DType::i64},
    {"uint64", DType::u64},
    {"float16", DType::f16},
    {"float32", DType::f32},
    {"float64", DType::f64},
    {"bfloat16", DType::bf16},
}};

HostTensor tensor_of(DType type, Shape shape, const std::vector<std::int64_t>& values) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements;
    for (const auto value : values) {
      if constexpr (std::is_integral_v<T>) {
        elements.push_back(static_cast<T>(value));
      } else {
        elements.push_back(T(static_cast<float>(value)));
      }
    }
    return HostTensor::of<T>(elements, std::move(shape));
  });
}

/// Reads words from left to right.
class Reader {
 public:
  Reader(std::string_view words, int rank) : words_{words}, left_{words}, rank_{rank} {}

  void spaces() { left_.remove_prefix(std::min(left_.find_first_not_of(' '), left_.size())); }
  bool skip(std::string_view text) {
    spaces();
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  void expect(std::string_view text) {
    if (!skip(text)) fail("expected '" + std::string{text} + "'");
  }
  [[nodiscard]] bool at_end() {
    spaces();
    return left_.empty();
  }
  /// Products of numbers and `rank`, added up.
  std::int64_t sum() {
    std::int64_t total = product();
    while (skip("+")) total += product();
    return total;
  }
  std::int64_t extent() { return in_bounds(sum()); }
  DType type() {
    spaces();
    for (const auto& [name, type] : kTypes) {
      if (skip(name)) return type;
    }
    fail("expected a type");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Malformed{"'" + std::string{words_} + "': " + why + " at '" + std::string{left_} + "'"};
  }

 private:
  std::int64_t product() {
    std::int64_t total = factor();
    while (skip("*")) total *= factor();
    return total;
  }
  std::int64_t factor() {
    if (skip("rank")) return rank_;
    if (skip("(")) {
      const auto value = sum();
      expect(")");
      return value;
    }
    spaces();
    std::int64_t value = 0;
    const auto read = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (read.ec != std::errc{} || value > 1'000'000) fail("expected a number");
    left_.remove_prefix(static_cast<std::size_t>(read.ptr - left_.data()));
    return value;
  }
  std::int64_t in_bounds(std::int64_t extent) const {
    if (extent < 0 || extent > 1'000'000) fail("an extent of " + std::to_string(extent));
    return extent;
  }

  std::string_view words_;
  std::string_view left_;
  std::int64_t rank_;
};

HostTensor full(DType type, Shape shape, std::int64_t value) {
  const std::vector<std::int64_t> values(count_of(shape), value);
  return tensor_of(type, std::move(shape), values);
}

/// "[a, b] type", int64 if there is no type.
HostTensor list(Reader& reader) {
  std::vector<std::int64_t> values;
  do {
    values.push_back(reader.sum());
  } while (reader.skip(","));
  reader.expect("]");
  const auto type = reader.at_end() ? DType::i64 : reader.type();
  return tensor_of(type, {static_cast<std::int64_t>(values.size())}, values);
}

/// Behind "1-D".
HostTensor row(Reader& reader, int rank) {
  if (reader.skip("of")) {
    const auto extent = reader.extent();
    reader.expect(", dim out of range");
    return full(DType::i64, {extent}, rank);
  }
  reader.expect(",");
  const auto extent = reader.extent();
  reader.expect("elements, all");
  return full(DType::i64, {extent}, reader.sum());
}

/// "2x3 int64 full of rank" or "2 x (rank + 1), all rank".
HostTensor block(Reader& reader) {
  Shape shape{reader.extent()};
  while (reader.skip("x")) shape.push_back(reader.extent());
  if (reader.skip(", all")) return full(DType::i64, std::move(shape), reader.sum());
  const auto type = reader.type();
  reader.expect("full of");
  return full(type, std::move(shape), reader.sum());
}

}  // namespace

HostTensor rank_tensor(const std::string& words, int rank) {
  Reader reader{words, rank};
  HostTensor tensor;
  if (reader.skip("[")) {
    tensor = list(reader);
  } else if (reader.skip("scalar")) {
    const auto type = reader.type();
    tensor = full(type, {}, reader.sum());
  } else if (reader.skip("1-D")) {
    tensor = row(reader, rank);
  } else {
    tensor = block(reader);
  }
  if (!reader.at_end()) reader.fail("something more");
  return tensor;
}

json rank_object(const std::string& words, int rank) {
  // Python's literals become JSON's: other quotes, and `rank` outside of them.
  std::string text;
  bool quoted = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const char c = words[i];
    if (c == '\'') {
      quoted = !quoted;
      text += '"';
    } else if (!quoted && words.compare(i, 4, "rank") == 0) {
      text += std::to_string(rank);
      i += 3;
    } else {
      text += c;
    }
  }
  auto object = json::parse(text, nullptr, false);
  if (object.is_discarded() || !object.is_array())
    throw Malformed{"'" + words + "' is not a list of objects"};
  return object;
}

json describe(const HostTensor& tensor) {
  std::string dtype;
  for (const auto& [name, type] : kTypes) {
    if (type == tensor.dtype()) dtype = name;
  }
  json data = json::array();
  with_type(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (const T value : tensor.as<T>()) {
      if constexpr (std::is_arithmetic_v<T>) {
        data.push_back(value);
      } else {
        data.push_back(static_cast<float>(value));
      }
    }
  });
  return {{"shape", tensor.shape()}, {"dtype", dtype}, {"data", std::move(data)}};
}

}  // namespace acc::golden
