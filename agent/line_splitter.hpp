#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace acc::agent {

/// A line longer than this is shown in pieces of this length.
inline constexpr std::size_t kMaxLine = std::size_t{64} << 10U;

/// Cuts a stream into lines. What comes out depends on the bytes only, not on how they arrived.
class LineSplitter {
 public:
  /// @param carriage_ends  '\r' ends a piece too (and stays in it), so that progress bars move on a
  /// terminal
  explicit LineSplitter(bool carriage_ends = false) : carriage_ends_{carriage_ends} {}

  /// Calls emit(text, newline) for each finished piece; text is without its '\n'. newline: the
  /// piece ends its line on the console; false only for a piece that ends in '\r'.
  template <class Emit>
  void feed(std::string_view bytes, Emit&& emit) {
    if (carriage_ends_ && (ends_in_carriage() || bytes.find('\r') != std::string_view::npos))
      return feed_slowly(bytes, emit);
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t length = std::min(end, bytes.size());
      const std::size_t room = kMaxLine - held_.size();
      if (length > room) {
        put(bytes.substr(0, room), true, emit);
        bytes.remove_prefix(room);
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

  // A '\r' is held until the next byte tells whether it is a "\r\n".
  template <class Emit>
  void feed_slowly(std::string_view bytes, Emit& emit) {
    for (const char c : bytes) {
      if (c == '\n') {
        put({}, true, emit);
        continue;
      }
      if (ends_in_carriage()) put({}, false, emit);
      if (held_.size() == kMaxLine) put({}, true, emit);
      held_.push_back(c);
    }
  }

  [[nodiscard]] bool ends_in_carriage() const {
    return carriage_ends_ && !held_.empty() && held_.back() == '\r';
  }

  bool carriage_ends_;
  std::string held_;
};

/// Passes a stream on as it is, but in whole lines, so that streams that share a console don't tear
/// each other.
class PassThrough {
 public:
  /// Appends to `to` all that ends in '\n' or '\r' (progress bars), or is longer than a line may
  /// be.
  void feed(std::string_view bytes, std::string& to) {
    const std::size_t end = last_end(bytes);
    if (end != 0) {
      to.append(held_).append(bytes.substr(0, end));
      held_.clear();
    }
    held_.append(bytes.substr(end));
    if (held_.size() >= kMaxLine) release(to);
  }
  /// The writer fell silent (it may be asking something), or the stream has ended.
  void release(std::string& to) {
    to.append(held_);
    held_.clear();
  }
  [[nodiscard]] bool holds() const { return !held_.empty(); }

 private:
  static std::size_t last_end(std::string_view bytes) {
    const std::size_t newline = bytes.rfind('\n') + 1;  // npos + 1 is 0
    return newline + (bytes.substr(newline).rfind('\r') + 1);
  }
  std::string held_;
};

}  // namespace acc::agent
