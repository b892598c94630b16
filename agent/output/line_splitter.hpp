#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace acc::agent {

/// A line longer than this is shown in pieces of this length.
inline constexpr std::size_t kMaxLine = std::size_t{1} << 20U;

/// How much of the beginning of `line` makes a piece of at most `most` bytes: no character of UTF-8
/// is cut. Bytes that aren't UTF-8 are cut anywhere.
inline std::size_t piece_of(std::string_view line, std::size_t most) {
  if (line.size() <= most) return line.size();
  constexpr std::size_t kLongestCharacter = 4;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  for (std::size_t back = 0; back < kLongestCharacter && back < most; ++back)
    if (!continues(line[most - back])) return most - back;
  return most;
}

/// Cuts a stream into lines. What comes out depends on the bytes only, not on how they arrived.
class LineSplitter {
 public:
  /// @param carriage_ends  '\r' ends a piece too (and stays in it), so that progress bars move on a
  /// terminal
  /// @param longest  a longer line comes in pieces
  explicit LineSplitter(bool carriage_ends = false, std::size_t longest = kMaxLine)
      : carriage_ends_{carriage_ends}, longest_{longest} {}

  /// Calls emit(text, newline) for each finished piece; text is without its '\n'. newline: the
  /// piece ends its line on the console; false only for a piece that ends in '\r'.
  template <class Emit>
  void feed(std::string_view bytes, Emit&& emit) {
    if (carriage_ends_ && (ends_in_carriage() || bytes.find('\r') != std::string_view::npos))
      return feed_slowly(bytes, emit);
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t length = std::min(end, bytes.size());
      const std::size_t room = longest_ - held_.size();
      if (length > room) {
        held_.append(bytes.substr(0, room + 1));  // whether a character ends here is seen behind it
        bytes.remove_prefix(room + 1);
        put_piece(emit);
      } else if (end == std::string_view::npos) {
        held_.append(bytes);
        return;
      } else {
        put(bytes.substr(0, end), true, emit);
        bytes.remove_prefix(end + 1);
      }
    }
  }

  /// The stream has ended: what is held is the last line.
  template <class Emit>
  void finish(Emit&& emit) {
    if (!held_.empty()) put({}, !ends_in_carriage(), emit);
    std::string{}.swap(held_);
  }

  [[nodiscard]] bool holds() const { return !held_.empty(); }

 private:
  template <class Emit>
  void put(std::string_view rest, bool newline, Emit& emit) {
    if (held_.empty()) {
      emit(rest, newline);
      return;
    }
    held_.append(rest);
    emit(std::string_view{held_}, newline);
    held_.clear();
  }

  template <class Emit>
  void put_piece(Emit& emit) {
    const std::size_t length = piece_of(held_, longest_);
    emit(std::string_view{held_}.substr(0, length), true);
    held_.erase(0, length);
  }

  // A '\r' is held until the next byte tells whether it is a "\r\n".
  template <class Emit>
  void feed_slowly(std::string_view bytes, Emit& emit) {
    for (const char c : bytes) {
      if (c == '\n') {
        put({}, true, emit);
        continue;
      }
      if (ends_in_carriage()) put({}, false, emit);
      held_.push_back(c);
      if (held_.size() > longest_) put_piece(emit);
    }
  }

  [[nodiscard]] bool ends_in_carriage() const {
    return carriage_ends_ && !held_.empty() && held_.back() == '\r';
  }

  bool carriage_ends_;
  std::size_t longest_;
  std::string held_;
};

/// Passes a stream on as it is, but in whole lines, so that streams that share a console don't tear
/// each other. A progress bar moves with each '\r', at whichever end of its text the writer puts
/// it: a '\r' before the text (tqdm) is held until the text follows, or another stream's bar would
/// be written behind this one's instead of over it.
class PassThrough {
 public:
  /// Appends to `to` all that ends in '\n' or at a '\r', or is longer than a line may be.
  void feed(std::string_view bytes, std::string& to) {
    const std::size_t newline = bytes.rfind('\n') + 1;  // npos + 1 is 0
    if (newline != 0) {
      to.append(held_).append(bytes.substr(0, newline));
      held_.clear();
      bytes.remove_prefix(newline);
    }
    const bool has_carriage = bytes.find('\r') != std::string_view::npos;
    held_.append(bytes);
    if (has_carriage) put_bars(to);
    if (held_.size() >= kMaxLine) put(piece_of(held_, kMaxLine), to);
  }
  /// The writer fell silent (it may be asking something).
  void release(std::string& to) {
    if (holds()) put(held_.size(), to);
  }
  /// The stream has ended.
  void finish(std::string& to) { put(held_.size(), to); }
  /// There is text that should not wait long.
  [[nodiscard]] bool holds() const { return held_.find_first_not_of('\r') != std::string::npos; }

 private:
  void put(std::size_t length, std::string& to) {
    to.append(held_, 0, length);
    held_.erase(0, length);
  }
  void put_bars(std::string& to) {
    const std::size_t last = held_.rfind('\r');
    if (held_.front() != '\r') return put(last + 1, to);
    const std::size_t text = held_.find_first_not_of('\r');
    if (text < last) put(held_.find_last_not_of('\r', last) + 1, to);
  }
  std::string held_;
};

}  // namespace acc::agent
