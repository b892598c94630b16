#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace acc::agent {

/// The last bytes of a stream. Takes no memory before the first byte, and little for a worker that
/// writes little.
class TailBuffer {
 public:
  static constexpr std::size_t kSize = std::size_t{64} << 10U;

  void append(std::string_view bytes);
  [[nodiscard]] std::string text() const;
  /// The last `most` bytes of it.
  [[nodiscard]] std::string text(std::size_t most) const;
  /// How many bytes the stream has had.
  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] Instant last_append() const { return last_append_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// Whether there is anything to read in it but spaces and line ends.
  [[nodiscard]] bool blank() const;
  void clear();

 private:
  void grow(std::size_t needed);

  std::unique_ptr<char[]> bytes_;  // a ring once size_ == kSize
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::uint64_t total_ = 0;
  Instant last_append_{};
  std::size_t next_ = 0;  // where the next byte goes
};

}  // namespace acc::agent
