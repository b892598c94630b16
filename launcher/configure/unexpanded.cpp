#include "launcher/configure/unexpanded.hpp"

#include "common/text.hpp"

#include <cctype>
#include <string_view>

namespace acc::configure {

namespace {

bool has_variable(std::string_view text) {
  for (auto at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    auto name = text.substr(at + 1);
    if (name.starts_with('{')) name.remove_prefix(1);
    if (name.empty()) continue;
    if (name.front() == '_' || std::isalpha(static_cast<unsigned char>(name.front())) != 0)
      return true;
  }
  return false;
}

}  // namespace

Complaints unexpanded_values(std::span<const std::string> words) {
  Complaints complaints;
  std::string flag;
  for (const auto& word : words) {
    const bool is_flag = word.starts_with('-');
    const auto equals = is_flag ? word.find('=') : std::string::npos;
    if (is_flag) flag = word.substr(0, equals);
    const auto value = !is_flag                      ? word
                       : equals == std::string::npos ? std::string{}
                                                     : word.substr(equals + 1);
    if (!flag.empty() && has_variable(value))
      complaints.push_back({Errc::bad_usage, flag + ": " + in_quotes(value, 60) +
                                                 " holds a variable that the shell didn't expand: "
                                                 "write its value, or give the line without the "
                                                 "quotes"});
  }
  return complaints;
}

}  // namespace acc::configure
