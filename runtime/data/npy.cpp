#include "common/text.hpp"
#include "runtime/data/byte_reader.hpp"

#include <acc/readers.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

namespace acc::runtime {

namespace {

struct NpyType {
  std::string_view code;
  std::size_t bytes;
  DType type;
};
constexpr std::array<NpyType, 12> kNpyTypes{{
    {"b1", 1, DType::u8},
    {"i1", 1, DType::i8},
    {"u1", 1, DType::u8},
    {"i2", 2, DType::i32},  // widened
    {"u2", 2, DType::i32},  // widened
    {"i4", 4, DType::i32},
    {"u4", 4, DType::u32},
    {"i8", 8, DType::i64},
    {"u8", 8, DType::u64},
    {"f2", 2, DType::f16},
    {"f4", 4, DType::f32},
    {"f8", 8, DType::f64},
}};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeader = 1U << 20;  // a header of records can be long; this is longer
constexpr std::size_t kMostDims = 64;          // as NumPy 2

/// The header: a dictionary in Python syntax.
struct NpyHeader {
  NpyType type{};
  std::endian order = std::endian::native;
  bool fortran = false;
  std::vector<std::uint64_t> extents;
};

class HeaderParser {
 public:
  HeaderParser(const ByteReader& reader, std::string_view text)
      : reader_{reader}, text_{text}, begin_{reader.offset() - text.size()} {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_type = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!skip('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr" && !has_type) {
        has_type = true;
        parse_type(header);
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.fortran = truth();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.extents = tuple();
      } else {
        fail("a key that doesn't belong here: '" + printable(key) + "'");
      }
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    spaces();
    if (at_ < text_.size()) fail("something behind the dictionary");
    if (!has_type || !has_order || !has_shape)
      fail("the dictionary lacks 'descr', 'fortran_order' or 'shape'");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    reader_.corrupt(begin_ + at_, "the .npy header: " + why);
  }
  void spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool skip(char c) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!skip(c)) fail(std::string{"expected '"} + c + "'");
  }
  std::string_view quoted() {
    const char quote = skip('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const auto end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("a text without an end");
    const auto inside = text_.substr(at_, end - at_);
    at_ = end + 1;
    return inside;
  }
  bool truth() {
    spaces();
    for (const auto& [word, value] :
         {std::pair{std::string_view{"True"}, true}, std::pair{std::string_view{"False"}, false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("expected True or False");
  }
  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> extents;
    expect('(');
    while (!skip(')')) {
      spaces();
      std::size_t end = at_;
      while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
      const auto extent = parse_number<std::uint64_t>(text_.substr(at_, end - at_));
      if (!extent || extents.size() == kMostDims) fail("not a shape");
      extents.push_back(*extent);
      at_ = end;
      if (!skip(',')) {
        expect(')');
        break;
      }
    }
    return extents;
  }
  void parse_type(NpyHeader& header) {
    spaces();
    if (at_ < text_.size() && text_[at_] == '[') fail("records are not numbers");
    const auto descr = quoted();
    const char order = descr.empty() ? ' ' : descr.front();
    const auto* const type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(), [&](const auto& one) {
      return !descr.empty() && one.code == descr.substr(1);
    });
    if (descr.empty() || type == kNpyTypes.end() ||
        std::string_view{"<>|="}.find(order) == std::string_view::npos ||
        (order == '|' && type->bytes != 1))
      fail("elements of type '" + printable(descr) + "' are not read: only plain numbers are");
    header.type = *type;
    if (order == '<') header.order = std::endian::little;
    if (order == '>') header.order = std::endian::big;
  }

  const ByteReader& reader_;
  std::string_view text_;
  std::uint64_t begin_;
  std::size_t at_ = 0;
};

NpyHeader read_header(ByteReader& reader) {
  std::array<std::byte, kMagic.size()> magic{};
  reader.read_all(magic, "the magic number");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    reader.corrupt(0, "not a .npy file: it begins with other bytes than \\x93NUMPY");
  const auto major = reader.integer<std::uint8_t>(std::endian::little, "the version");
  const auto minor = reader.integer<std::uint8_t>(std::endian::little, "the version");
  if (major < 1 || major > 3 || minor != 0) {
    reader.corrupt(kMagic.size(),
                   "version " + std::to_string(major) + "." + std::to_string(minor) + " of .npy");
  }
  const std::size_t length =
      major == 1 ? reader.integer<std::uint16_t>(std::endian::little, "the header's length")
                 : reader.integer<std::uint32_t>(std::endian::little, "the header's length");
  if (length > kMostHeader || length > reader.at_most())
    reader.corrupt("a header of " + std::to_string(length) + " bytes");
  std::string text(length, '\0');
  reader.read_all(std::as_writable_bytes(std::span{text}), "the header");
  return HeaderParser{reader, text}.parse();
}

/// From the order in which the first index runs fastest to the one in which the last does.
HostTensor to_c_order(const HostTensor& from) {
  const auto& shape = from.shape();
  const std::size_t element = size_of(from.dtype());
  const std::size_t dims = shape.size();
  HostTensor to{from.dtype(), shape};
  std::vector<std::size_t> strides(dims);  // in bytes, in `from`
  std::size_t stride = element;
  for (std::size_t d = 0; d < dims; ++d) {
    strides[d] = stride;
    stride *= static_cast<std::size_t>(shape[d]);
  }
  std::vector<std::int64_t> index(dims);
  std::size_t source = 0;
  for (std::size_t at = 0; at < to.bytes().size(); at += element) {
    std::memcpy(&to.bytes()[at], &from.bytes()[source], element);
    for (std::size_t d = dims; d-- > 0;) {
      source += strides[d];
      if (++index[d] < shape[d]) break;
      source -= strides[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return to;
}

HostTensor read_npy(ByteReader& reader) {
  const auto header = read_header(reader);
  const auto& type = header.type;
  auto tensor = read_elements(
      reader, {type.type, type.bytes, type.code.starts_with('i'), header.order}, header.extents);
  return header.fortran && header.extents.size() > 1 ? to_c_order(tensor) : tensor;
}

}  // namespace

HostTensor read_npy(const std::string& path) {
  ByteReader reader{path};
  return read_npy(reader);
}

HostTensor parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  ByteReader reader{bytes, name};
  return read_npy(reader);
}

}  // namespace acc::runtime
