#include "common/exit_codes.hpp"
#include "common/version.hpp"
#include "launcher/configure/ask.hpp"
#include "launcher/configure/command.hpp"
#include "launcher/configure/convert.hpp"
#include "launcher/configure/file_verbs.hpp"
#include "launcher/configure/messages.hpp"
#include "launcher/configure/pages.hpp"

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace acc::configure {
namespace {

int complain(const Complaints& complaints) {
  for (const auto& one : complaints) tell(one.what);
  tell("try --help");
  return to_int(ExitCode::usage);
}

int carry_out(const Command& command) {
  using Verb = int (*)(const Command&);
  constexpr std::pair<std::string_view, Verb> kVerbs[] = {
      {"", ask_and_write}, {"default", write_default}, {"update", update},  {"check", check},
      {"show", show},      {"secret", make_secret},    {"convert", convert}};
  for (const auto& [name, verb] : kVerbs)
    if (name == command.verb) return verb(command);
  return print(list_of_questions());
}

int run(const std::vector<std::string>& words) {
  const auto command = parse_command(words);
  if (command.has("--help")) return print(help_text(command.verb));
  if (command.has("--version")) return print(std::string{"acc-config "} + version() + "\n");
  if (!command.complaints.empty()) return complain(command.complaints);
  if (!command.has("--completion")) return carry_out(command);
  const auto text = completion(command.value("--completion"));
  if (!text.empty()) return print(text);
  return complain({{Errc::bad_usage, "--completion: expected bash, zsh or fish"}});
}

}  // namespace
}  // namespace acc::configure

int main(int argc, char** argv) {
  // Errors of write, not our end: `| head`, and a limit on the size of files.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  return acc::configure::run({argv + std::min(argc, 1), argv + argc});
}
