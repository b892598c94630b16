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

ModuleCall read_module_call(std::span<const std::string> words, std::size_t at) {
  ModuleCall call;
  while (at < words.size()) {
    const auto& word = words[at++];
    const bool is_long = word == "--check-hash-based-pycs";
    const bool is_option = word.size() > 1 && word[0] == '-' && (is_long || word[1] != '-');
    if (!is_option) return {};
    // Letters may stand together; what ends them takes the rest of the word, or the next one.
    const auto last = is_long ? word.size() - 1 : word.find_first_of("cmWX", 1);
    const char letter = last == std::string::npos || is_long ? '\0' : word[last];
    if (letter == 'c') return {};
    const bool is_apart = last != std::string::npos && last + 1 == word.size();
    if (is_apart && at == words.size()) return {};
    if (letter == 'm') {
      call.module = is_apart ? words[at++] : word.substr(last + 1);
      if (last > 1 && word != "-um") call.options.push_back(word.substr(0, last));
      call.next = at;
      return call;
    }
    if (word != "-u") call.options.push_back(word);
    if (is_apart) call.options.push_back(words[at++]);
  }
  return {};
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
