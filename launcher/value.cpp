#include "launcher/value.hpp"

#include "common/text.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>

namespace acc::launcher {

std::string python_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64] = {};  // its zeros end the exponent
  const auto written =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string_view text{buffer, static_cast<std::size_t>(written.ptr - buffer)};
  const auto mark = text.find('e');
  const bool negative = text.front() == '-';
  std::string digits;
  for (const char c : text.substr(negative ? 1 : 0, mark - (negative ? 1 : 0))) {
    if (c != '.') digits += c;
  }
  const int exponent = std::atoi(text.data() + mark + 1);
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {  // where Python changes to the exponent form
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    char tail[16];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

std::string python_repr(const Value& value);

std::string quoted(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    out += c;
  }
  return out + quote;
}

struct ToText {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool v) const { return v ? "True" : "False"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return python_float(v); }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const List& items) const {
    std::string out;
    for (const auto& item : items) out += (out.empty() ? "" : ", ") + python_repr(item);
    return "[" + out + "]";
  }
  std::string operator()(const Map& entries) const {
    std::string out;
    for (const auto& entry : entries) {
      out += (out.empty() ? "" : ", ") + quoted(entry.key) + ": " + python_repr(entry.value);
    }
    return "{" + out + "}";
  }
};

std::string python_repr(const Value& value) {
  return value.text() != nullptr ? quoted(*value.text()) : python_text(value);
}

struct IsTrue {
  bool operator()(std::monostate) const { return false; }
  bool operator()(bool v) const { return v; }
  bool operator()(std::int64_t v) const { return v != 0; }
  bool operator()(double v) const { return v != 0; }
  template <class Container>
  bool operator()(const Container& v) const {
    return !v.empty();
  }
};

}  // namespace

std::string python_text(const Value& value) { return std::visit(ToText{}, value.data); }

bool truthy(const Value& value) { return std::visit(IsTrue{}, value.data); }

std::string as_read(const Value& value) {
  const auto spelled = printable(value.spelled.empty() ? python_text(value) : value.spelled);
  return (value.is_json ? "" : "unquoted ") + spelled + " is " + std::string{kind_name(value)} +
         (value.is_json ? " in JSON" : " in YAML");
}

std::string_view kind_name(const Value& value) {
  constexpr std::string_view kNames[] = {"null", "a boolean", "a whole number", "a number",
                                         "text", "a list",    "a mapping"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(value.data)>);
  return kNames[value.data.index()];
}

}  // namespace acc::launcher
