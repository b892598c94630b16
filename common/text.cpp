#include "common/text.hpp"

#include "common/plain_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <numeric>

namespace acc {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const auto end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string plural(std::uint64_t n, std::string_view one) {
  return std::to_string(n) + ' ' + std::string{one} + (n == 1 ? "" : "s");
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const auto& part : parts) {
    if (&part != parts.data()) text += separator;
    text += part;
  }
  return text;
}

template <int (*convert)(int)>
static std::string converted(std::string_view text) {
  std::string out{text};
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(convert(c)); });
  return out;
}

std::string to_lower(std::string_view text) { return converted<std::tolower>(text); }
std::string to_upper(std::string_view text) { return converted<std::toupper>(text); }

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "…";
    const auto shown = shown_character(text);
    if (shown > 0) {
      out += text.substr(0, shown);
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(text[0])));
      out += escaped;
    }
    text.remove_prefix(std::max<std::size_t>(1, shown));
  }
  return out;
}

static std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::string in_quotes(std::string_view text, std::size_t limit) {
  return "'" + printable(text, limit) + "'";
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  // At most half of a short word may differ: "np" is not "cpu".
  const auto most = std::min(std::max<std::size_t>(2, word.size() / 3), word.size() / 2);
  std::size_t best_distance = most + 1;
  for (const auto candidate : candidates) {
    const auto distance = edit_distance(word.substr(0, 100), candidate);
    // A slip seldom changes the first letter and another one: "bogus" is not "logs".
    if (distance > 1 && !candidate.starts_with(word.substr(0, 1))) continue;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace acc
