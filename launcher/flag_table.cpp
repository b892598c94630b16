#include "launcher/flag_table.hpp"

#include "common/text.hpp"

#include <algorithm>

namespace acc::launcher {

namespace {

constexpr std::size_t kColumnOfText = 26;
constexpr std::size_t kLineWidth = 80;

std::size_t columns(std::string_view text) {  // of UTF-8
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](unsigned char c) { return (c & 0xc0U) != 0x80U; }));
}

bool is_same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char one, char other) {
    return (one == '_' ? '-' : one) == (other == '_' ? '-' : other);
  });
}

}  // namespace

bool belongs_to(const FlagRow& flag, std::string_view verb) {
  if (flag.verbs.empty()) return true;
  const auto verbs = split(flag.verbs, ' ');
  return std::ranges::find(verbs, verb.empty() ? std::string_view{"-"} : verb) != verbs.end();
}

const FlagRow* find_flag(std::span<const FlagRow> table, std::string_view word) {
  for (const auto& flag : table) {
    const bool is_letter =
        word.size() == 2 && flag.letter != 0 && word[0] == '-' && word[1] == flag.letter;
    if (is_letter || (word.starts_with("--") && is_same_name(word, flag.name))) return &flag;
  }
  return nullptr;
}

std::string_view nearest_flag(std::span<const FlagRow> table, std::string_view verb,
                              std::string_view word) {
  std::vector<std::string_view> names;
  for (const auto& flag : table)
    if (belongs_to(flag, verb)) names.push_back(flag.name);
  return nearest(word, names);
}

std::string take_flag(const FlagRow& flag, std::span<const std::string> words, std::size_t& at,
                      FlagValues& into) {
  const auto& word = words[at - 1];
  const auto equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const auto name = word.substr(0, equals);
  auto& values = into[std::string{flag.name}];
  values.emplace_back();
  if (flag.metavar.empty())
    return equals == std::string::npos ? std::string{} : name + " takes no value";
  if (equals != std::string::npos) {
    values.back() = word.substr(equals + 1);
  } else if (at < words.size()) {
    values.back() = words[at++];
  } else {
    return name + " needs a value: " + std::string{flag.metavar};
  }
  return {};
}

std::string last_value(const FlagValues& flags, std::string_view name) {
  const auto found = flags.find(name);
  return found == flags.end() ? std::string{} : found->second.back();
}

std::string help_entry(const std::string& left, std::string_view right) {
  std::string out = "  " + left;
  std::size_t column = columns(out);
  if (column + 2 > kColumnOfText) {
    out += "\n";
    column = 0;
  }
  out.append(kColumnOfText - column, ' ');
  column = kColumnOfText;
  bool is_first = true;
  for (const auto& word : split(right, ' ')) {
    if (!is_first && column + 1 + columns(word) > kLineWidth) {
      out += "\n" + std::string(kColumnOfText, ' ');
      column = kColumnOfText;
      is_first = true;
    }
    out += (is_first ? "" : " ") + word;
    column += columns(word) + (is_first ? 0 : 1);
    is_first = false;
  }
  return out + "\n";
}

std::string help_entry(const FlagRow& flag) {
  std::string left = flag.letter != 0 ? std::string{'-', flag.letter} + ", " : std::string{};
  left += std::string{flag.name};
  if (!flag.metavar.empty()) left += " " + std::string{flag.metavar};
  return help_entry(left, flag.help);
}

std::vector<std::string> spellings(const FlagRow& flag) {
  std::vector<std::string> all{std::string{flag.name}};
  if (flag.letter != 0) all.push_back(std::string{'-', flag.letter});
  return all;
}

std::string spellings_of(std::span<const FlagRow> table, std::string_view verb) {
  std::vector<std::string> all;
  for (const auto& flag : table) {
    if (!belongs_to(flag, verb)) continue;
    for (auto& one : spellings(flag)) all.push_back(std::move(one));
  }
  return join(all, " ");
}

std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == '\\' || c == ':') out += '\\';
    out += c == '\'' ? std::string{"'\\''"} : std::string(1, c);
  }
  return out;
}

std::string fish_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return "'" + out + "'";
}

std::string fish_flag(const FlagRow& flag) {
  std::string out = " -l " + std::string{flag.name.substr(2)};
  if (flag.letter != 0) out += std::string{" -s "} + flag.letter;
  if (!flag.metavar.empty()) out += flag.metavar == "FILE" ? " -r -F" : " -x";
  return out + " -d " + fish_text(flag.help);
}

}  // namespace acc::launcher
