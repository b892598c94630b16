#pragma once

#include "common/duration.hpp"
#include "common/ids.hpp"
#include "rendezvous/messages.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/// Encoding of single values in a frame (docs/protocol.md): FieldWriter and FieldReader use the
/// same field lists (message_fields.hpp), so they can't diverge.
namespace acc::rendezvous {

/// A text or list with its own limit; any other text has kMaxText.
template <class T>
struct Limited {
  T& it;
  std::size_t most;
};
template <class T>
Limited<T> limited(T& it, std::size_t most) {
  return {it, most};
}

/// Ten years. Longer durations are cut, so that no peer can make a sum of times overflow.
inline constexpr Millis kMaxDuration{std::chrono::hours{24 * 3650}};

template <class T>
concept Number = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept Enumeration = std::is_enum_v<T>;

/// Little endian on every machine.
template <Number T>
void store(T value, char* to) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<char>(bits >> (8 * i) & 0xff);
}
template <Number T>
[[nodiscard]] T load(const char* from) {
  std::make_unsigned_t<T> bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bits |= static_cast<std::make_unsigned_t<T>>(
        static_cast<std::make_unsigned_t<T>>(static_cast<unsigned char>(from[i])) << (8 * i));
  return static_cast<T>(bits);
}

/// Appends values. Texts for display are cut at kMaxText; other limits are the caller's duty.
class FieldWriter {
 public:
  /// @param out  outlives the writer
  explicit FieldWriter(std::string& out) : out_{out} {}

  template <class... T>
  void operator()(const T&... parts) {
    (put(parts), ...);
  }

 private:
  template <Number T>
  void put(T value) {
    char bytes[sizeof(T)];
    store(value, bytes);
    out_.append(bytes, sizeof(T));
  }
  void put(double fraction) { put(std::bit_cast<std::uint64_t>(std::clamp(fraction, 0.0, 1.0))); }
  void put(bool value) { put(std::uint8_t{value}); }
  template <Enumeration T>
  void put(T value) {
    put(static_cast<std::underlying_type_t<T>>(value));
  }
  template <class Tag, class Rep>
  void put(Strong<Tag, Rep> value) {
    put(value.value());
  }
  void put(Millis time) { put(std::int64_t{std::clamp(time, Millis{0}, kMaxDuration).count()}); }
  void put(const std::string& text) {
    auto size = std::min(text.size(), kMaxText);
    // not in the middle of a UTF-8 character
    if (size < text.size())
      while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
    put_bytes({text.data(), size});
  }
  void put(const Limited<const std::string>& text) { put_bytes(text.it); }
  template <class T>
  void put(const Limited<const std::vector<T>>& list) {
    put(static_cast<std::uint32_t>(list.it.size()));
    for (const auto& one : list.it) put(one);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  requires std::is_class_v<T>
  void put(const T& whole) { fields(*this, whole); }
  void put_bytes(std::string_view bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    out_.append(bytes);
  }

  std::string& out_;
};

/// Reads values. Total: for any bytes, each call fills its part or records the fault and does
/// nothing from then on. Memory grows with the bytes present, not with announced lengths.
class FieldReader {
 public:
  /// @param left    the bytes still to be read; outlives the reader
  /// @param offset  of the first of them in the frame, for messages
  FieldReader(std::string_view left, std::size_t offset)
      : left_{left}, end_{offset + left.size()} {}

  template <class... T>
  bool operator()(T&&... parts) {
    return (get(parts) && ...);
  }

  [[nodiscard]] bool ok() const { return problem_.empty(); }
  /// "text of 70000 bytes, at most 4096 (byte 57)"
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  template <Number T>
  bool get(T& value) {
    if (left_.size() < sizeof(T)) return ends_early();
    value = load<T>(left_.data());
    left_.remove_prefix(sizeof(T));
    return true;
  }
  bool get(double& fraction) {
    std::uint64_t bits = 0;
    if (!get(bits)) return false;
    fraction = std::bit_cast<double>(bits);
    return (fraction >= 0 && fraction <= 1) || complain("fraction that is not between 0 and 1");
  }
  bool get(bool& value) {
    std::uint8_t byte = 0;
    if (!get(byte)) return false;
    value = byte == 1;
    return byte <= 1 || complain("neither yes nor no: " + std::to_string(byte));
  }
  template <Enumeration T>
  bool get(T& value) {
    std::underlying_type_t<T> number{};
    if (!get(number)) return false;
    value = static_cast<T>(number);
    return value <= last_value(T{}) ||
           complain("unknown " + std::string{noun_of(T{})} + " " + std::to_string(number));
  }
  template <class Tag, class Rep>
  bool get(Strong<Tag, Rep>& value) {
    Rep number{};
    if (!get(number)) return false;
    value = Strong<Tag, Rep>{number};
    if constexpr (std::same_as<Strong<Tag, Rep>, WorldSize>)
      if (number == 0) return complain("world size 0");
    return true;
  }
  bool get(Millis& time) {
    std::int64_t count = 0;
    if (!get(count)) return false;
    time = Millis{count};
    return (time >= Millis{0} && time <= kMaxDuration) ||
           complain("duration of " + std::to_string(count) + " ms, between 0 and " +
                    std::to_string(kMaxDuration.count()));
  }
  bool get(std::string& text) { return get_text(text, kMaxText); }
  bool get(Limited<std::string>& text) { return get_text(text.it, text.most); }
  template <class T>
  bool get(Limited<std::vector<T>>& list) {
    std::uint32_t count = 0;
    if (!get(count)) return false;
    if (count > list.most)
      return complain("list of " + std::to_string(count) + ", at most " +
                      std::to_string(list.most));
    list.it.reserve(std::min<std::size_t>(count, left_.size() / kSmallestElement));
    for (std::uint32_t i = 0; i < count; ++i)
      if (!get(list.it.emplace_back())) return false;
    return true;
  }
  template <class T>
  bool get(std::optional<T>& value) {
    bool is_there = false;
    if (!get(is_there)) return false;
    return !is_there || get(value.emplace());
  }
  template <class T>
  requires std::is_class_v<T>
  bool get(T& whole) {
    fields(*this, whole);
    return ok();
  }

  bool get_text(std::string& text, std::size_t most) {
    std::uint32_t size = 0;
    if (!get(size)) return false;
    if (size > most)
      return complain("text of " + std::to_string(size) + " bytes, at most " +
                      std::to_string(most));
    if (left_.size() < size) return ends_early();
    text.assign(left_.data(), size);
    left_.remove_prefix(size);
    return true;
  }
  bool ends_early() {
    return complain("ends early, " + std::to_string(left_.size()) + " bytes left");
  }
  bool complain(std::string what) {
    problem_ = std::move(what) + " (byte " + std::to_string(end_ - left_.size()) + ")";
    return false;
  }

  static constexpr std::size_t kSmallestElement =
      8;  ///< bytes of the smallest list element, a signal number

  std::string_view left_;
  std::size_t end_;
  std::string problem_;
};

}  // namespace acc::rendezvous
