#include "launcher/yaml_scalar.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

namespace acc::launcher {

namespace {

template <std::size_t N>
bool one_of(std::string_view text, const std::string_view (&words)[N]) {
  return std::ranges::find(words, text) != std::end(words);
}

constexpr std::string_view kTrue[] = {"yes",  "Yes", "YES", "true", "True",
                                      "TRUE", "on",  "On",  "ON"};
constexpr std::string_view kFalse[] = {"no",    "No",  "NO",  "false", "False",
                                       "FALSE", "off", "Off", "OFF"};
constexpr std::string_view kNull[] = {"", "~", "null", "Null", "NULL"};
constexpr std::string_view kInfinite[] = {".inf", ".Inf", ".INF"};
constexpr std::string_view kNan[] = {".nan", ".NaN", ".NAN"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out), [](char c) { return c != '_'; });
  return out;
}

struct Signed {
  bool negative = false;
  std::string_view digits;
};
Signed split_sign(std::string_view text) {
  if (text.empty() || (text[0] != '-' && text[0] != '+')) return {false, text};
  return {text[0] == '-', text.substr(1)};
}

/// Too big for us (Python's integers have no bound): nothing, so the scalar stays text and prints
/// the same.
std::optional<std::int64_t> to_integer(std::string_view digits, int base) {
  const auto plain = without_underscores(digits);
  std::int64_t number = 0;
  const auto [end, error] =
      std::from_chars(plain.data(), plain.data() + plain.size(), number, base);
  if (plain.empty() || error != std::errc{} || end != plain.data() + plain.size())
    return std::nullopt;
  return number;
}

/// 190:20:30 counts in sixties. Each part after the first is below 60; `fraction` may end the last
/// one.
std::optional<double> sexagesimal(std::string_view digits, bool fraction) {
  const auto parts = split(digits, ':');
  if (parts.size() < 2 || !all(parts[0], "0123456789_") || !is_digit(parts[0][0]))
    return std::nullopt;
  double number = std::strtod(without_underscores(parts[0]).c_str(), nullptr);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::string_view part = parts[i];
    const bool last = i + 1 == parts.size();
    const auto point = part.find('.');
    if (last != (fraction && last) && point != std::string_view::npos) return std::nullopt;
    if (last && fraction && point == std::string_view::npos) return std::nullopt;
    const auto whole = part.substr(0, point);
    if (whole.empty() || whole.size() > 2 || !all(whole, "0123456789") ||
        (whole.size() == 2 && whole[0] > '5'))
      return std::nullopt;
    if (point != std::string_view::npos && point + 1 < part.size() &&
        !all(part.substr(point + 1), "0123456789_"))
      return std::nullopt;
    number = number * 60 + std::strtod(without_underscores(part).c_str(), nullptr);
  }
  return number;
}

std::optional<std::int64_t> resolve_integer(std::string_view text) {
  const auto [negative, digits] = split_sign(text);
  if (digits.empty() || !is_digit(digits[0])) return std::nullopt;
  std::optional<std::int64_t> number;
  if (digits.starts_with("0b") && all(digits.substr(2), "01_")) {
    number = to_integer(digits.substr(2), 2);
  } else if (digits.starts_with("0x") && all(digits.substr(2), "0123456789abcdefABCDEF_")) {
    number = to_integer(digits.substr(2), 16);
  } else if (digits == "0") {
    number = 0;
  } else if (digits[0] == '0') {
    if (all(digits.substr(1), "01234567_")) number = to_integer(digits.substr(1), 8);
  } else if (all(digits, "0123456789_")) {
    number = to_integer(digits, 10);
  } else if (digits.find(':') != std::string_view::npos) {
    const auto value = sexagesimal(digits, false);
    if (value && std::abs(*value) < 9e15) number = static_cast<std::int64_t>(*value);
  }
  if (number && negative) number = -*number;
  return number;
}

/// A float of YAML 1.1 has a dot, and an exponent has a sign.
bool is_float(std::string_view digits) {
  const auto point = digits.find('.');
  if (point == std::string_view::npos) return false;
  const auto whole = digits.substr(0, point);
  if (!whole.empty() && (!is_digit(whole[0]) || !all(whole, "0123456789_"))) return false;
  auto rest = digits.substr(point + 1);
  const auto mark = rest.find_first_of("eE");
  if (mark != std::string_view::npos) {
    const auto exponent = rest.substr(mark + 1);
    if (exponent.size() < 2 || (exponent[0] != '-' && exponent[0] != '+') ||
        !all(exponent.substr(1), "0123456789"))
      return false;
    rest = rest.substr(0, mark);
  }
  if (!rest.empty() && !all(rest, "0123456789_")) return false;
  return !whole.empty() || (!rest.empty() && is_digit(rest[0]));
}

std::optional<double> resolve_float(std::string_view text) {
  if (one_of(text, kNan)) return std::numeric_limits<double>::quiet_NaN();
  const auto [negative, digits] = split_sign(text);
  const double sign = negative ? -1 : 1;
  if (one_of(digits, kInfinite)) return sign * std::numeric_limits<double>::infinity();
  if (is_float(digits)) {
    if (digits[0] == '.' && digits.size() != text.size())
      return std::nullopt;  // PyYAML knows no sign before a bare dot
    return sign * std::strtod(without_underscores(digits).c_str(), nullptr);
  }
  if (digits.find(':') == std::string_view::npos) return std::nullopt;
  const auto value = sexagesimal(digits, true);
  if (!value) return std::nullopt;
  return sign * *value;
}

}  // namespace

Value resolve_yaml_scalar(std::string_view text) {
  if (one_of(text, kNull)) return {};
  if (one_of(text, kTrue)) return Value{true};
  if (one_of(text, kFalse)) return Value{false};
  if (const auto number = resolve_integer(text)) return Value{*number};
  if (const auto number = resolve_float(text)) return Value{*number};
  return Value{std::string{text}};
}

}  // namespace acc::launcher
