#include "launcher/configure/line_changes.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <vector>

namespace acc::configure {

std::string line_changes(std::string_view before, std::string_view after) {
  constexpr std::size_t kMaxLines = 2000;  // the table below is quadratic
  const auto lines_of = [](std::string_view text) {
    auto lines = split(text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
  };
  const auto old = lines_of(before);
  const auto fresh = lines_of(after);
  if (old.size() > kMaxLines || fresh.size() > kMaxLines) return "(too long to compare)\n";
  // How many lines the ends from i and j have in common.
  std::vector<std::vector<std::size_t>> common(old.size() + 1,
                                               std::vector<std::size_t>(fresh.size() + 1));
  for (std::size_t i = old.size(); i-- > 0;) {
    for (std::size_t j = fresh.size(); j-- > 0;)
      common[i][j] = old[i] == fresh[j] ? common[i + 1][j + 1] + 1
                                        : std::max(common[i + 1][j], common[i][j + 1]);
  }
  std::string out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < old.size() || j < fresh.size()) {
    const bool are_equal = i < old.size() && j < fresh.size() && old[i] == fresh[j];
    if (are_equal) {
      ++i;
      ++j;
      continue;
    }
    const bool drops =
        j == fresh.size() || (i < old.size() && common[i + 1][j] >= common[i][j + 1]);
    out += drops ? "- " + printable(old[i++], 500) : "+ " + printable(fresh[j++], 500);
    out += "\n";
  }
  return out;
}

}  // namespace acc::configure
