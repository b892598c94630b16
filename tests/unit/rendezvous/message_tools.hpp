#pragma once

#include "rendezvous/message_fields.hpp"
#include "rendezvous/messages.hpp"

#include <array>
#include <cstddef>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

/// Fills and shows any message by its field list.
namespace acc::rendezvous {

/// Fills every field with something that may travel, now and then with the most that may.
class RandomFields {
 public:
  explicit RandomFields(std::uint64_t seed) : dice_{seed} {}

  template <class... T>
  void operator()(T&&... parts) {
    (fill(parts), ...);
  }
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return dice_() % end; }

 private:
  template <Number T>
  void fill(T& value) {
    value = static_cast<T>(dice_());
  }
  void fill(bool& value) { value = below(2) == 1; }
  void fill(double& fraction) { fraction = static_cast<double>(below(1001)) / 1000; }
  template <Enumeration T>
  void fill(T& value) {
    value = static_cast<T>(below(static_cast<std::uint64_t>(last_value(T{})) + 1));
  }
  template <class Tag, class Rep>
  void fill(Strong<Tag, Rep>& value) {
    value = Strong<Tag, Rep>{static_cast<Rep>(dice_() | 1)};
  }
  void fill(Millis& time) {
    time = Millis{below(static_cast<std::uint64_t>(kMaxDuration.count()) + 1)};
  }
  void fill(std::string& text) { fill_text(text, kMaxText); }
  void fill(Limited<std::string>& text) { fill_text(text.it, text.most); }
  template <class T>
  void fill(Limited<std::vector<T>>& list) {
    list.it.resize(below(20) == 0 ? std::min<std::size_t>(list.most, 40)
                                  : below(std::min<std::size_t>(list.most, 4) + 1));
    for (auto& one : list.it) fill(one);
  }
  template <class T>
  void fill(std::optional<T>& value) {
    value.reset();
    if (below(2) == 1) fill(value.emplace());
  }
  template <class T>
  requires std::is_class_v<T>
  void fill(T& part) { fields(*this, part); }
  void fill_text(std::string& text, std::size_t most) {
    text.resize(below(100) == 0 ? most : below(24));
    for (auto& c : text) c = static_cast<char>(dice_());
  }

  std::mt19937_64 dice_;
};

/// Shows every field, so that two messages can be compared without the bytes of either.
class FieldText {
 public:
  template <class... T>
  void operator()(const T&... parts) {
    (show(parts), ...);
  }
  [[nodiscard]] std::string text() const { return out_.str(); }

 private:
  template <Number T>
  void show(T value) {
    out_ << +value << ' ';
  }
  void show(bool value) { out_ << (value ? "yes " : "no "); }
  void show(double value) { out_ << value << ' '; }
  template <Enumeration T>
  void show(T value) {
    out_ << '#' << +static_cast<std::underlying_type_t<T>>(value) << ' ';
  }
  template <class Tag, class Rep>
  void show(Strong<Tag, Rep> value) {
    out_ << value.value() << ' ';
  }
  void show(Millis time) { out_ << time.count() << "ms "; }
  void show(const std::string& text) { out_ << '"' << text << "\" "; }
  template <class T>
  void show(const Limited<T>& value) {
    show(value.it);
  }
  template <class T>
  void show(const std::vector<T>& list) {
    out_ << "[ ";
    for (const auto& one : list) show(one);
    out_ << "] ";
  }
  template <class T>
  void show(const std::optional<T>& value) {
    if (value)
      show(*value);
    else
      out_ << "- ";
  }
  template <class T>
  requires std::is_class_v<T>
  void show(const T& part) {
    out_ << "{ ";
    fields(*this, part);
    out_ << "} ";
  }

  std::ostringstream out_;
};

inline std::string show(const Message& message) {
  FieldText shown;
  std::visit([&](const auto& m) { fields(shown, m); }, message);
  return shown.text();
}

template <std::size_t... I>
std::array<Message, sizeof...(I)> default_messages(std::index_sequence<I...>) {
  return {Message{std::in_place_index<I>}...};
}
/// One of each kind, all fields as they are by default.
inline auto one_of_each() {
  return default_messages(std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace acc::rendezvous
