#include "common/exit_codes.hpp"
#include "common/version.hpp"
#include "launcher/env/collect.hpp"
#include "launcher/env/command.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

namespace acc::env {
namespace {

/// As acc-ctl's: a reader that has seen enough (`| head`) is no failure.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  if (errno == EPIPE) return 0;
  std::fprintf(stderr, "acc-env: %s\n",
               system_error(errno, "write to the standard output").what.c_str());
  return to_int(ExitCode::failure);
}

int run(const std::vector<std::string>& words) {
  const auto command = parse_command(words);
  if (command.help) return print(help_text());
  if (command.version) return print(std::string{"acc-env "} + version() + "\n");
  for (const auto& one : command.complaints)
    std::fprintf(stderr, "acc-env: %s\n", one.what.c_str());
  if (!command.complaints.empty()) {
    std::fputs("acc-env: try --help\n", stderr);
    return to_int(ExitCode::usage);
  }
  return print(
      to_string(collect_facts(launcher::read_environment(), command.config_file), command.format));
}

}  // namespace
}  // namespace acc::env

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return acc::env::run({argv + std::min(argc, 1), argv + argc});
}
