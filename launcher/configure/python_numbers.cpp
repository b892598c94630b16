#include "launcher/configure/python_numbers.hpp"

#include "common/text.hpp"

#include <cctype>
#include <limits>
#include <string>

namespace acc::configure {

namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Without underscores; nothing if one of them isn't between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool is_between =
        i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!is_between) return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<std::int64_t> python_integer(std::string_view text) {
  auto digits = without_underscores(without_blanks(text));
  if (!digits) return std::nullopt;
  if (digits->starts_with('+')) {
    digits->erase(0, 1);
    if (digits->starts_with('-')) return std::nullopt;
  }
  return parse_number<std::int64_t>(*digits);
}

std::optional<double> python_number(std::string_view text) {
  auto digits = without_underscores(without_blanks(text));
  if (!digits) return std::nullopt;
  const bool is_negative = digits->starts_with('-');
  if (is_negative || digits->starts_with('+')) digits->erase(0, 1);
  const auto word = to_lower(*digits);
  const double sign = is_negative ? -1 : 1;
  if (word == "inf" || word == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (digits->empty() || !(is_digit(digits->front()) || digits->front() == '.'))
    return std::nullopt;
  const auto number = parse_number<double>(*digits);
  return number ? std::optional{sign * *number} : std::nullopt;
}

}  // namespace acc::configure
