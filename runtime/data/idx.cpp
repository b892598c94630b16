#include "runtime/data/byte_reader.hpp"

#include <acc/readers.hpp>
#include <array>

namespace acc::runtime {

namespace {

struct IdxType {
  unsigned code;
  std::size_t bytes;
  DType type;
};
constexpr std::array<IdxType, 6> kIdxTypes{{
    {0x08, 1, DType::u8},
    {0x09, 1, DType::i8},
    {0x0B, 2, DType::i32},  // i16, widened
    {0x0C, 4, DType::i32},
    {0x0D, 4, DType::f32},
    {0x0E, 8, DType::f64},
}};

/// Two zeros, the type, the number of dimensions, each extent as a big-endian 32-bit number, the
/// elements, big-endian.
HostTensor read_idx(ByteReader& reader) {
  const auto magic = reader.integer<std::uint32_t>(std::endian::big, "the magic number");
  if (magic >> 16 != 0) reader.corrupt(0, "not an IDX file: it begins with other bytes than two 0");
  const IdxType* type = nullptr;
  for (const auto& one : kIdxTypes) {
    if (one.code == ((magic >> 8) & 0xff)) type = &one;
  }
  if (type == nullptr)
    reader.corrupt(2, "no type of elements: " + std::to_string((magic >> 8) & 0xff));
  const std::size_t dims = magic & 0xff;
  if (dims == 0) reader.corrupt(3, "an IDX file of no dimensions");

  std::vector<std::uint64_t> extents;
  for (std::size_t i = 0; i < dims; ++i)
    extents.push_back(reader.integer<std::uint32_t>(std::endian::big, "the extents"));
  return read_elements(reader, {type->type, type->bytes, true, std::endian::big}, extents);
}

}  // namespace

HostTensor read_idx(const std::string& path) {
  ByteReader reader{path};
  return read_idx(reader);
}

HostTensor parse_idx(std::span<const std::byte> bytes, const std::string& name) {
  ByteReader reader{bytes, name};
  return read_idx(reader);
}

}  // namespace acc::runtime
