#include "agent/shell_interrupt.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/ctl/bridge.hpp"
#include "launcher/ctl/command.hpp"
#include "launcher/ctl/ctl.hpp"
#include "launcher/ctl/outcome.hpp"
#include "launcher/ctl/pages.hpp"
#include "launcher/ctl/top/top.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::ctl {
namespace {

int complain(const Complaints& complaints) {
  for (const auto& one : complaints) std::fprintf(stderr, "acc-ctl: %s\n", one.what.c_str());
  std::fputs("acc-ctl: try --help\n", stderr);
  return static_cast<int>(CtlExit::usage);
}

/// After Ctrl-C a loop of the shell goes on with its next command unless this one dies of SIGINT.
/// A job that was asked to stop and ended with a code of its own has handled it.
bool is_end_by_key(int exit) {
  return agent::had_interrupt_key() && (exit == 128 + SIGINT || exit == 128 + SIGTERM);
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) return print(help_text(""));
  // Not a verb for people.
  if (words.front() == "bridge") return run_bridge(std::span{words}.subspan(1));
  const auto command = parse_command(words);
  if (command.has("--help")) return print(help_text(command.verb));
  if (command.has("--version")) return print(std::string{"acc-ctl "} + version() + "\n");
  if (!command.complaints.empty()) return complain(command.complaints);
  if (command.has("--completion")) {
    const auto text = completion(command.value("--completion"));
    if (!text.empty()) return print(text);
    return complain({{Errc::bad_usage, "--completion: expected bash, zsh or fish"}});
  }
  if (command.verb == "top") return top::run_top(command);
  const int exit = carry_out(command);
  if (output_failure() == 0) return exit;
  tell(system_error(output_failure(), "can't write to the standard output").what);
  return exit != code(CtlExit::done) ? exit : code(CtlExit::failed);
}

}  // namespace
}  // namespace acc::ctl

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // `| head`: an error of write, not our end
  std::vector<std::string> words{argv + std::min(argc, 1), argv + argc};
  const std::string_view name{argc > 0 ? argv[0] : ""};
  if (name.substr(name.rfind('/') + 1) == "acc-top") words.insert(words.begin(), "top");
  const int exit = acc::ctl::run(words);
  if (acc::ctl::is_end_by_key(exit)) acc::agent::die_of_interrupt();
  return exit;
}
