#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace acc::ctl::top {

/// The end of a stream as plain lines, from its bytes as they arrive (pure). Lines keep their
/// numbers when the oldest ones are forgotten.
class LogText {
 public:
  static constexpr std::size_t kMostLines = 20'000;
  static constexpr std::size_t kLongestLine = 4096;  ///< bytes; the rest of a line isn't shown

  struct Entry {
    std::string text;
    bool is_note = false;  ///< of ours, not of the stream
  };

  void append(std::string_view bytes);
  /// A line of ours, in its place between those of the stream.
  void note(std::string text);
  void clear() { *this = LogText{}; }

  [[nodiscard]] std::uint64_t first() const { return first_; }
  /// Behind the last line, with an unfinished one.
  [[nodiscard]] std::uint64_t end() const { return first_ + lines_.size() + (open_.empty() ? 0 : 1); }
  /// @param number  from first() to end() - 1
  [[nodiscard]] Entry at(std::uint64_t number) const;
  [[nodiscard]] bool is_empty() const { return first() == end(); }

 private:
  void put(Entry entry);
  void finish_open();

  std::deque<Entry> lines_;
  std::uint64_t first_ = 0;
  std::string open_;  ///< the line that has no end yet, as it came
};

}  // namespace acc::ctl::top
