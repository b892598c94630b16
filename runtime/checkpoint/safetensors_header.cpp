#include "common/text.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <unordered_set>

namespace acc::runtime::safetensors {
namespace {

using nlohmann::json;

struct Type {
  std::string_view name;
  unsigned bits;
  std::optional<DType> ours;
};
// In the package's order: by rising alignment.
constexpr std::array kTypes{
    Type{"BOOL", 8, {}},           Type{"F4", 4, {}},           Type{"F6_E2M3", 6, {}},
    Type{"F6_E3M2", 6, {}},        Type{"U8", 8, DType::u8},    Type{"I8", 8, DType::i8},
    Type{"F8_E5M2", 8, {}},        Type{"F8_E4M3", 8, {}},      Type{"F8_E8M0", 8, {}},
    Type{"I16", 16, {}},           Type{"U16", 16, {}},         Type{"F16", 16, DType::f16},
    Type{"BF16", 16, DType::bf16}, Type{"I32", 32, DType::i32}, Type{"U32", 32, DType::u32},
    Type{"F32", 32, DType::f32},   Type{"C64", 64, {}},         Type{"F64", 64, DType::f64},
    Type{"I64", 64, DType::i64},   Type{"U64", 64, DType::u64},
};

const Type* find_type(std::string_view name) noexcept {
  const auto at = std::ranges::find(kTypes, name, &Type::name);
  return at == kTypes.end() ? nullptr : &*at;
}

/// Reads on behalf of the JSON parser and shows how far it has come.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  Cursor(const char* at, const char** seen) : at_{at}, seen_{seen} {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    auto old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** seen_;
};

/// A tensor while its object is read.
struct Draft {
  SafetensorsEntry entry;
  std::vector<std::uint64_t> offsets;
  bool has_type = false, has_shape = false, has_offsets = false;
};

/// Handles the events of the JSON parser. Only entries are built, so a hostile header can't use
/// memory by nesting, and duplicate names are detected.
class Reader final : public nlohmann::json_sax<json> {
 public:
  explicit Reader(Header& header) : header_{header} {}

  std::string complaint;  ///< set when an event returned false

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::start:
        place_ = Place::top;
        return true;
      case Place::top:
        place_ = name_ == "__metadata__" ? Place::metadata : Place::tensor;
        draft_ = {};
        draft_.entry.name = name_;
        return true;
      case Place::tensor:
        if (field_ == Field::other) return skip_deeper();
        break;
      case Place::skipping:
        return skip_deeper();
      default:
        break;
    }
    return unexpected("an object");
  }

  bool end_object() override {
    switch (place_) {
      case Place::top:
        place_ = Place::end;
        return true;
      case Place::metadata:
        place_ = Place::top;
        return true;
      case Place::tensor:
        place_ = Place::top;
        return finish_tensor();
      default:
        return skip_back();
    }
  }

  bool key(std::string& text) override {
    switch (place_) {
      case Place::top:
        name_ = text;
        if (!names_.insert(text).second) return refuse("is there twice");
        return true;
      case Place::metadata:
        metadata_key_ = text;
        if (header_.metadata.contains(text)) return refuse(in_quotes(text) + " is there twice");
        return true;
      case Place::tensor:
        return begin_field(text);
      default:
        return true;
    }
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::skipping || (place_ == Place::tensor && field_ == Field::other)) {
      return skip_deeper();
    }
    if (place_ == Place::tensor && (field_ == Field::shape || field_ == Field::offsets)) {
      place_ = Place::numbers;
      return true;
    }
    return unexpected("a list");
  }

  bool end_array() override {
    if (place_ != Place::numbers) return skip_back();
    place_ = Place::tensor;
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(metadata_key_, text);
      return true;
    }
    if (place_ == Place::tensor && field_ == Field::type) {
      draft_.entry.type = text;
      return true;
    }
    return ignored() || unexpected("a string");
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::numbers) return ignored() || unexpected("a number");
    if (field_ == Field::offsets) {
      if (draft_.offsets.size() == 2) return refuse("data_offsets has more than two numbers");
      draft_.offsets.push_back(value);
      return true;
    }
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse("shape: " + std::to_string(value) + " is too large");
    }
    draft_.entry.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool number_integer(std::int64_t) override {
    return ignored() || unexpected("a negative number");
  }
  bool number_float(double, const std::string& text) override {
    return ignored() || unexpected("the number " + printable(text, 40));
  }
  bool boolean(bool) override { return ignored() || unexpected("true or false"); }
  bool null() override { return ignored() || unexpected("null"); }
  bool binary(binary_t&) override { return unexpected("binary"); }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: …": the words at the end
    // say what.
    const std::string_view what = error.what();
    const auto words = what.find(": ");
    complaint = "is no JSON: " +
                printable(words == std::string_view::npos ? what : what.substr(words + 2), 300);
    return false;
  }

 private:
  enum class Place { start, top, metadata, tensor, numbers, skipping, end };
  enum class Field { type, shape, offsets, other };

  bool begin_field(const std::string& text) {
    bool* seen = nullptr;
    field_ = Field::other;
    if (text == "dtype") {
      field_ = Field::type;
      seen = &draft_.has_type;
    } else if (text == "shape") {
      field_ = Field::shape;
      seen = &draft_.has_shape;
    } else if (text == "data_offsets") {
      field_ = Field::offsets;
      seen = &draft_.has_offsets;
    }
    // A later version of the format may have further fields.
    if (seen == nullptr) return true;
    if (*seen) return refuse(in_quotes(text) + " is there twice");
    return *seen = true;
  }

  bool finish_tensor() {
    auto& entry = draft_.entry;
    if (!draft_.has_type) return refuse("has no dtype");
    if (!draft_.has_shape) return refuse("has no shape");
    if (!draft_.has_offsets || draft_.offsets.size() != 2) return refuse("has no two data_offsets");
    const auto* type = find_type(entry.type);
    if (type == nullptr) return refuse("has the unknown dtype " + in_quotes(entry.type));
    entry.dtype = type->ours;
    const auto begin = draft_.offsets[0];
    const auto end = draft_.offsets[1];
    if (end < begin) {
      return refuse("data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) +
                    "] end before they begin");
    }
    std::uint64_t bits = type->bits;
    for (const auto extent : entry.shape) {
      if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(extent), &bits)) {
        return refuse("has a shape of more than 2^64 bits");
      }
    }
    if (bits % 8 != 0) return refuse("ends within a byte");
    if (bits / 8 != end - begin) {
      return refuse("has " + std::to_string(end - begin) + " bytes, but " + entry.type + " " +
                    to_string(entry.shape) + " takes " + std::to_string(bits / 8));
    }
    entry.begin = begin;
    entry.bytes = end - begin;
    header_.entries.push_back(std::move(entry));
    return true;
  }

  bool skip_deeper() {
    place_ = Place::skipping;
    ++skipped_;
    return true;
  }
  bool skip_back() {
    if (--skipped_ == 0) place_ = Place::tensor;
    return true;
  }
  [[nodiscard]] bool ignored() const {
    return place_ == Place::skipping || (place_ == Place::tensor && field_ == Field::other);
  }

  bool unexpected(std::string_view what) {
    if (place_ == Place::start) return refuse("the header is " + std::string{what});
    if (place_ == Place::metadata) {
      return refuse(in_quotes(metadata_key_) + " is " + std::string{what} + ", not a string");
    }
    if (place_ == Place::tensor || place_ == Place::numbers) {
      constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};
      const std::string field{kFields[static_cast<std::size_t>(field_)]};
      if (place_ == Place::tensor) return refuse(field + " is " + std::string{what});
      return refuse(field + " holds " + std::string{what});
    }
    return refuse("is " + std::string{what});
  }
  bool refuse(std::string what) {
    complaint = place_ == Place::start ? std::move(what)
                                       : (name_ == "__metadata__" ? "" : "tensor ") +
                                             in_quotes(name_) + ": " + std::move(what);
    return false;
  }

  Header& header_;
  Place place_ = Place::start;
  Field field_ = Field::other;
  std::size_t skipped_ = 0;  ///< how deep in a value of no interest
  std::string name_, metadata_key_;
  Draft draft_;
  std::unordered_set<std::string> names_;
};

[[noreturn]] void refuse(std::string_view file, const std::string& what) {
  throw Error{ErrorCode::corrupt, "'" + printable(file, 500) + "': " + what};
}

/// Sorts the entries by place, sees that they fill the data without hole or overlap, and makes
/// their places those in the file.
void check_places(Header& header, std::uint64_t data_begin, std::uint64_t data_bytes,
                  std::string_view file) {
  std::ranges::sort(header.entries, [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  std::uint64_t end = 0;
  for (auto& entry : header.entries) {
    const auto where = "tensor " + in_quotes(entry.name) + " begins at byte " +
                       std::to_string(entry.begin) + " of the data";
    if (entry.begin != end) {
      refuse(file, where +
                       (entry.begin < end ? ", within the one before that ends at "
                                          : ", but the one before ends at ") +
                       std::to_string(end));
    }
    if (entry.bytes > data_bytes - end) {
      refuse(file, where + " and has " + std::to_string(entry.bytes) +
                       " bytes, but there are only " + std::to_string(data_bytes) +
                       " bytes of data: the file is cut short");
    }
    end += entry.bytes;
    entry.begin += data_begin;
  }
  if (end != data_bytes) {
    refuse(file, std::to_string(data_bytes - end) +
                     " bytes at its end belong to no tensor, from byte " +
                     std::to_string(data_begin + end));
  }
}

}  // namespace

std::string_view type_of(DType dtype) noexcept {
  const auto at = std::ranges::find(kTypes, std::optional{dtype}, &Type::ours);
  return at->name;  // each of ours is in the table
}

std::optional<DType> dtype_of_type(std::string_view type) noexcept {
  const auto* known = find_type(type);
  return known != nullptr ? known->ours : std::nullopt;
}

std::optional<unsigned> bits_of(std::string_view type) noexcept {
  const auto* known = find_type(type);
  return known != nullptr ? std::optional{known->bits} : std::nullopt;
}

std::size_t order_of(std::string_view type) noexcept {
  return static_cast<std::size_t>(std::ranges::find(kTypes, type, &Type::name) - kTypes.begin());
}

std::uint64_t header_length(std::span<const std::byte, kLengthBytes> first,
                            std::uint64_t file_bytes, std::string_view file) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(first[i]);
  }
  if (length > kMaxHeader) {
    refuse(file, "its first 8 bytes tell of a header of " + std::to_string(length) +
                     " bytes, more than " + std::to_string(kMaxHeader) + ": no safetensors file");
  }
  if (length > file_bytes - kLengthBytes) {
    refuse(file, "its header of " + std::to_string(length) + " bytes goes beyond the end at byte " +
                     std::to_string(file_bytes));
  }
  return length;
}

Header parse_header(std::string_view text, std::uint64_t file_bytes, std::string_view file) {
  if (text.empty() || text.front() != '{')
    refuse(file, "its header doesn't begin with '{' (byte 8)");
  // To the JSON parser it is the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    refuse(file, "is no JSON: a zero at byte " + std::to_string(kLengthBytes + nul));
  }
  Header header;
  Reader reader{header};
  const char* seen = text.data();
  const auto understood = json::sax_parse(Cursor{text.data(), &seen},
                                          Cursor{text.data() + text.size(), &seen}, &reader);
  if (!understood) {
    const auto at = kLengthBytes + static_cast<std::size_t>(seen - text.data());
    refuse(file, reader.complaint + " (before byte " + std::to_string(at) + ")");
  }
  const auto data_begin = kLengthBytes + text.size();
  check_places(header, data_begin, file_bytes - data_begin, file);
  return header;
}

}  // namespace acc::runtime::safetensors
