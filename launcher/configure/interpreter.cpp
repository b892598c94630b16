#include "launcher/configure/interpreter.hpp"

#include "launcher/configure/config_map.hpp"

#include <string_view>

namespace acc::configure {

namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

bool is_python(const std::string& word) {
  constexpr std::string_view kName = "python";
  const auto name = base_name(word);
  return name.starts_with(kName) &&
         name.find_first_not_of("0123456789.", kName.size()) == std::string_view::npos;
}

bool is_certain_python(const std::string& word) {
  return is_python(word) && word != "python" && word != "python3";
}

void set_interpreter(ForeignLine& line, const std::string& interpreter) {
  set_variable(line, "PYTHON_EXEC=" + interpreter);
}

bool take_python(ForeignLine& line) {
  auto& words = line.command;
  if (words.empty() || !is_python(words[0])) return false;
  std::size_t at = 1;
  while (at < words.size() && words[at] == "-u") ++at;  // acc-launch gives it, too
  const bool is_module = at + 1 < words.size() && words[at] == "-m";
  if (is_module) ++at;
  const bool is_other = at >= words.size() || words[at].empty() || words[at][0] == '-';
  if (is_other) {
    line.flags.emplace_back("--no_python");
    return true;
  }
  if (is_certain_python(words[0])) set_interpreter(line, words[0]);
  if (is_module) put(line.map, "module", Value{true});
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

}  // namespace acc::configure
