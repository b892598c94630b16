#include "launcher/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace acc::launcher {

Result<std::vector<std::string>> split_shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_inside = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'';
    if (escapes && i + 1 == text.size())
      return Error{Errc::bad_usage, "it ends in the middle: a backslash stands last"};
    if (escapes) {
      // Between double quotes a backslash stands for itself but in front of these.
      const char next = text[++i];
      if (quote == '"' && std::string_view{"\"\\$`"}.find(next) == std::string_view::npos)
        word += c;
      word += next;
      is_inside = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      is_inside = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (is_inside) words.push_back(std::move(word));
      word.clear();
      is_inside = false;
    } else {
      word += c;
      is_inside = true;
    }
  }
  if (quote != 0)
    return Error{Errc::bad_usage, std::string{"a "} + quote + " is opened and never closed"};
  if (is_inside) words.push_back(std::move(word));
  return words;
}

std::string quote_for_shell(std::string_view word) {
  const bool is_plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view{"_-+=./:,@%"}.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return std::string{word};
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return quoted + "'";
}

std::string quote_for_paste(std::string_view word) {
  const auto is_control = [](unsigned char c) { return std::iscntrl(c) != 0; };
  if (std::ranges::none_of(word, is_control)) return quote_for_shell(word);
  std::string quoted = "$'";
  for (const char c : word) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (is_control(static_cast<unsigned char>(c))) {
      char octal[8];  // of three digits: what follows may be a digit
      std::snprintf(octal, sizeof octal, "\\%03o",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      quoted += octal;
    } else {
      if (c == '\'' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string quote_for_shell(std::span<const std::string> words) {
  std::string line;
  for (const auto& word : words) {
    line += line.empty() ? "" : " ";
    line += quote_for_shell(word);
  }
  return line;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace acc::launcher
