#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace acc::agent {

/// The last bytes of a stream. Takes no memory before the first byte, and little for a worker that
/// writes little. Of a line that is longer than all of them the beginning is kept, too, with what
/// stands before it: an exception's message may hold a whole tensor.
class TailBuffer {
 public:
  static constexpr std::size_t kSize = std::size_t{64} << 10U;

  void append(std::string_view bytes);
  /// Whole characters; "…" for what was left out of a long line.
  [[nodiscard]] std::string text() const;
  /// The last `most` bytes, as they came.
  [[nodiscard]] std::string text(std::size_t most) const;
  /// How many bytes the stream has had.
  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] Instant last_append() const { return last_append_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// Whether there is anything to read in it but spaces and line ends.
  [[nodiscard]] bool blank() const;
  void clear();

 private:
  /// A line of which the beginning is, or will be, overwritten.
  struct LongLine {
    std::string head;              ///< its beginning, and some lines before it
    std::uint64_t head_begin = 0;  ///< offsets in the stream, as the two of the line
    std::uint64_t begin = 0;
    std::uint64_t end = UINT64_MAX;
  };

  void grow(std::size_t needed);
  void put(std::string_view bytes);
  void follow_line(std::string_view bytes);

  std::unique_ptr<char[]> bytes_;  // a ring once size_ == kSize
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::uint64_t total_ = 0;
  Instant last_append_{};
  std::size_t next_ = 0;  // where the next byte goes
  std::uint64_t line_begin_ = 0;
  std::unique_ptr<LongLine> long_line_;  // the last one
};

}  // namespace acc::agent
