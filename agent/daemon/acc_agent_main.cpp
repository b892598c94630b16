// acc-agent: the service of a node. It starts jobs, each in an acc-launch of its own, and answers
// for them over a unix socket. Jobs live on when it doesn't.

#include "agent/daemon/daemon.hpp"
#include "agent/daemon/settings.hpp"
#include "agent/daemon/start_jobs.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace acc;
using namespace acc::agent::daemon;

constexpr std::string_view kUsage =
    "usage: acc-agent [--state-dir FOLDER] [--socket FILE] [--settings FILE] [OPTION VALUE]…\n"
    "\n"
    "The service of a node: takes jobs over a unix socket, starts each in an acc-launch of its\n"
    "own, as the user who submitted it, and answers for it. Jobs live on when it ends.\n"
    "  acc-agent --state-dir /tmp/agent\n"
    "  curl --unix-socket /tmp/agent/agent.sock http://acc/v1/jobs\n"
    "\n";

constexpr std::string_view kNotes =
    "  --settings FILE      JSON with the options above as keys, as {\"slots\": 8}; default:\n"
    "                       /etc/acc/agent.json, or ~/.config/acc/agent.json\n"
    "  --foreground         as always: the caller puts it into the background\n"
    "  --version, --help\n"
    "\n"
    "Without --state-dir: /var/lib/acc and /run/acc/agent.sock as root, else\n"
    "~/.local/state/acc and $XDG_RUNTIME_DIR/acc/agent.sock (if that variable isn't set:\n"
    "~/.local/state/acc/agent.sock). With it: FOLDER/agent.sock.\n"
    "\n"
    "SIGHUP reads the settings and the jobs folder again. SIGTERM ends the service, not its\n"
    "jobs: the next one finds them.\n";

void say(const std::string& text) { std::fprintf(stderr, "acc-agent: %s\n", text.c_str()); }

int refuse(const std::string& what) {
  say(what);
  say("try --help");
  return to_int(ExitCode::usage);
}

int print(std::string_view text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (is_written || errno == EPIPE) return 0;
  say(system_error(errno, "write to the standard output").what);
  return to_int(ExitCode::output);
}

std::string help() {
  std::string text{kUsage};
  constexpr std::size_t kColumn = 23;
  for (const auto& row : setting_rows()) {
    std::string line = "  --" + std::string{row.name} + ' ' + std::string{row.metavar};
    line.resize(std::max(kColumn, line.size() + 2), ' ');
    text.append(line).append(row.help).append("\n");
  }
  return text.append(kNotes);
}

struct CommandLine {
  std::vector<std::pair<std::string, std::string>> options;
  std::string settings_file;  ///< empty: the usual one, if there is one
};

std::string own_program() {
  std::array<char, 4096> path{};
  const auto n = ::readlink("/proc/self/exe", path.data(), path.size());
  return n > 0 ? std::string{path.data(), static_cast<std::size_t>(n)} : std::string{};
}

/// File, then command line, then defaults: at the start, and at each SIGHUP.
Result<Settings> load(const CommandLine& line) {
  const bool is_root = ::geteuid() == 0;
  Settings settings;
  Complaints complaints;
  const bool is_named = !line.settings_file.empty();
  const auto path = is_named ? line.settings_file : default_settings_file(is_root);
  std::ifstream file{path, std::ios::binary};
  if (file) {
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    complaints = apply_settings_file(settings, text, path);
  } else if (is_named || errno != ENOENT) {
    complaints.push_back(system_error(errno, "read the settings '" + path + "'"));
  }
  for (const auto& [name, value] : line.options) {
    const auto wrong = find_setting(name)->set(settings, value);
    if (!wrong.empty()) complaints.push_back({Errc::bad_usage, "--" + name + ": " + wrong});
  }
  if (complaints.empty()) {
    fill_defaults(settings, is_root, own_program());
    return settings;
  }
  std::string all;
  for (const auto& one : complaints) all += (all.empty() ? "" : "\nacc-agent: ") + one.what;
  return Error{Errc::bad_usage, all};
}

}  // namespace

int main(int argc, char** argv) {
  // What was closed would else be taken by a socket, and be written to as the standard error.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    break;
  }
  // A handler, as what is ignored would be so in the jobs, too.
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  ::sigaction(SIGPIPE, &nothing, nullptr);
  ::umask(022);
  ::prctl(PR_SET_DUMPABLE, 0);  // a core file would hold the cluster's secret
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string word{argv[i]};
    if (word == "--help" || word == "-h") return print(help());
    if (word == "--version") return print(std::string{"acc-agent "} + version() + "\n");
    if (word == "--foreground") continue;
    if (!word.starts_with("--"))
      return refuse("'" + printable(word) + "': no further word is needed: jobs are submitted");
    const auto equals = word.find('=');
    const auto name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto* row = find_setting(name);
    if (row == nullptr && name != "settings") {
      const auto meant = nearest_setting(name);
      return refuse("there is no option --" + printable(name) +
                    (meant.empty() ? "" : " (did you mean --" + std::string{meant} + "?)"));
    }
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return refuse("--" + name + " needs a value");
    }
    if (row == nullptr) {
      line.settings_file = value;
    } else {
      line.options.emplace_back(row->name, value);
    }
  }
  return run_daemon([line] { return load(line); }, start_job_service);
}
