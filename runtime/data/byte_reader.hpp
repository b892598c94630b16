#pragma once

#include "common/unique_fd.hpp"

#include <acc/types.hpp>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct z_stream_s;

namespace acc::runtime {

/// The bytes of a file from its beginning to its end, unpacked if it is a gzip file.
class ByteReader {
 public:
  /// @throws Error system
  explicit ByteReader(const std::string& path);
  /// From memory, which outlives the reader. `name` is for messages.
  ByteReader(std::span<const std::byte> bytes, std::string name);
  ~ByteReader();
  ByteReader(ByteReader&&) = delete;

  /// @return how many; less than asked for only at the end.
  /// @throws Error system, corrupt (a broken gzip file)
  std::size_t read(std::span<std::byte> into);
  /// All of them. @throws Error also corrupt: the file ends before; `what` says in which part.
  void read_all(std::span<std::byte> into, const std::string& what);
  template <class T>
  T integer(std::endian order, const std::string& what) {
    std::byte bytes[sizeof(T)];
    read_all(bytes, what);
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const auto at = order == std::endian::big ? i : sizeof(T) - 1 - i;
      value = static_cast<T>(static_cast<T>(value << 8) | static_cast<T>(bytes[at]));
    }
    return value;
  }
  /// @return -1 at the end.
  int get();
  /// @throws Error corrupt  there is something more
  void expect_end(const std::string& behind);

  /// Of the unpacked bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Upper bound of the remaining bytes, by which claimed sizes are checked; the greatest number:
  /// unknown.
  [[nodiscard]] std::uint64_t at_most() const noexcept { return at_most_; }
  [[noreturn]] void corrupt(std::uint64_t at, const std::string& why) const;
  [[noreturn]] void corrupt(const std::string& why) const { corrupt(offset_, why); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void find_out();
  /// More of the file into `packed_`. @return false at its end.
  bool refill();
  bool unpack();
  /// More into `ready_`. @return false at the end.
  bool advance();

  std::string name_;
  UniqueFd file_;
  std::vector<std::byte> file_buffer_;
  std::span<const std::byte> packed_;  ///< read from the file and not used yet
  std::uint64_t packed_offset_ = 0;    ///< of its end
  std::unique_ptr<z_stream_s> gzip_;   ///< none: the bytes are as in the file
  std::vector<std::byte> unpacked_buffer_;
  std::span<const std::byte> ready_;
  std::uint64_t offset_ = 0;
  std::uint64_t at_most_ = ~std::uint64_t{0};
};

/// Representation of the elements of a tensor in a file.
struct StoredType {
  DType type = DType::u8;  ///< what they are given as
  std::size_t bytes = 1;   ///< of one in the file; 2 where `type` is i32: to be widened
  bool has_sign = false;   ///< of those of 2 bytes
  std::endian order = std::endian::native;
};

/// The elements of a tensor of these extents, and then the end of the file. More than the file can
/// hold is refused before memory is allocated. @throws Error corrupt
[[nodiscard]] HostTensor read_elements(ByteReader& reader, const StoredType& stored,
                                       std::span<const std::uint64_t> extents);

}  // namespace acc::runtime
