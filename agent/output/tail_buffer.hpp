#pragma once

#include <cstddef>
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
  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// Whether there is anything to read in it but spaces and line ends.
  [[nodiscard]] bool blank() const;
  void clear();

 private:
  void grow(std::size_t needed);

  std::unique_ptr<char[]> bytes_;  // a ring once size_ == kSize
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t next_ = 0;  // where the next byte goes
};

}  // namespace acc::agent
