#include "launcher/node_list.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace acc::launcher {

namespace {

constexpr std::size_t kMostNames = 100'000;
using Names = std::vector<std::string>;

Error no_list(std::string_view text, std::string_view why) {
  return {Errc::bad_config,
          "'" + printable(text) + "' is no list of host names: " + std::string{why}};
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// "07" or "07-09" appended as 07, 08, 09; false if it is neither, or too much.
bool append_range(std::string_view part, Names& into) {
  const auto dash = part.find('-');
  const auto first = part.substr(0, dash);
  const auto last = dash == std::string_view::npos ? first : part.substr(dash + 1);
  if (!all_digits(first) || !all_digits(last)) return false;
  const auto from = parse_number<std::uint64_t>(first);
  const auto to = parse_number<std::uint64_t>(last);
  if (!from || !to || *from > *to || *to - *from >= kMostNames - into.size()) return false;
  for (auto number = *from; number <= *to; ++number) {
    auto digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    into.push_back(std::move(digits));
  }
  return true;
}

/// What stands in brackets.
bool expand_ranges(std::string_view text, Names& into) {
  const auto parts = split(text, ',');
  return std::ranges::all_of(parts, [&](const auto& part) { return append_range(part, into); });
}

/// Every name so far with every ending.
bool multiply(Names& names, const Names& endings) {
  if (names.size() * endings.size() > kMostNames) return false;
  Names product;
  product.reserve(names.size() * endings.size());
  for (const auto& name : names) {
    for (const auto& ending : endings) product.push_back(name + ending);
  }
  names = std::move(product);
  return true;
}

/// One entry of the list, as "rack[1-2]node[1-3]x".
bool expand_entry(std::string_view entry, Names& into) {
  Names names{""};
  while (!entry.empty()) {
    const auto open = entry.find('[');
    if (!multiply(names, {std::string{entry.substr(0, open)}})) return false;
    if (open == std::string_view::npos) break;
    const auto close = entry.find(']', open);
    if (close == std::string_view::npos) return false;
    Names endings;
    if (!expand_ranges(entry.substr(open + 1, close - open - 1), endings)) return false;
    if (!multiply(names, endings)) return false;
    entry.remove_prefix(close + 1);
  }
  if (names.size() > kMostNames - into.size()) return false;
  into.insert(into.end(), names.begin(), names.end());
  return true;
}

bool is_entry(std::string_view entry) {
  return !entry.empty() && std::ranges::all_of(entry, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view{"-_.[],"}.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

}  // namespace

std::vector<std::string_view> list_entries(std::string_view text) {
  std::vector<std::string_view> entries;
  bool inside = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] != ',' || inside) continue;
    entries.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  entries.push_back(text.substr(begin));
  return entries;
}

Result<std::vector<std::string>> expand_node_list(std::string_view text) {
  Names names;
  for (const auto entry : list_entries(text)) {
    if (!is_entry(entry))
      return no_list(text, "a name is missing, or has characters of no host name");
    if (!expand_entry(entry, names))
      return no_list(text,
                     "brackets hold numbers and ranges, as [1-3,07-09], of 100,000 names at most");
  }
  return names;
}

Result<std::vector<std::uint32_t>> expand_counts(std::string_view text) {
  std::vector<std::uint32_t> counts;
  for (const auto& part : split(text, ',')) {
    std::string_view rest{part};
    std::uint32_t times = 1;
    const auto open = rest.find("(x");
    if (open != std::string_view::npos && rest.ends_with(')')) {
      times =
          parse_number<std::uint32_t>(rest.substr(open + 2, rest.size() - open - 3)).value_or(0);
      rest = rest.substr(0, open);
    }
    const auto count = parse_number<std::uint32_t>(rest);
    if (!count || times == 0 || times > kMostNames - counts.size())
      return no_list(text, "counts are written as 2(x3),1");
    counts.insert(counts.end(), times, *count);
  }
  return counts;
}

}  // namespace acc::launcher
