#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/ctl/bridge.hpp"
#include "launcher/ctl/command.hpp"
#include "launcher/ctl/ctl.hpp"
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

int print(const std::string& text) {
  const bool is_written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return static_cast<int>(is_written ? CtlExit::done : CtlExit::failed);
}

int complain(const Complaints& complaints) {
  for (const auto& one : complaints) std::fprintf(stderr, "acc-ctl: %s\n", one.what.c_str());
  std::fputs("acc-ctl: try --help\n", stderr);
  return static_cast<int>(CtlExit::usage);
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
  return carry_out(command);
}

}  // namespace
}  // namespace acc::ctl

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // `| head`: an error of write, not our end
  std::vector<std::string> words{argv + std::min(argc, 1), argv + argc};
  const std::string_view name{argc > 0 ? argv[0] : ""};
  if (name.substr(name.rfind('/') + 1) == "acc-top") words.insert(words.begin(), "top");
  return acc::ctl::run(words);
}
