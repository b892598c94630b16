#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace acc::launcher {

namespace {

Environment path_only() {
  const char* path = std::getenv("PATH");
  return {{"PATH", path == nullptr ? "" : path}};
}

}  // namespace

std::string version_text(const std::string& program, std::chrono::milliseconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd reading{ends[0]};
  UniqueFd writing{ends[1]};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program;
  std::string flag = "--version";
  char* argv[] = {name.data(), flag.data(), nullptr};
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return {};
  writing.reset();
  std::string text;
  const auto end = std::chrono::steady_clock::now() + limit;
  char buffer[4096];
  while (text.size() < 65536) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waiting{reading.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) break;
    const auto got = ::read(reading.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return text;
}

std::string mpirun_kind() {
  for (const std::string_view name : {"mpirun", "mpiexec"}) {
    const auto program = find_program(name, path_only());
    if (program.empty()) continue;
    return version_text(program, std::chrono::seconds{2}).find("Open MPI") != std::string::npos
               ? "openmpi"
               : "intel";
  }
  return {};
}

std::string name_in_hosts(std::string_view hosts, const std::string& name) {
  for (const auto& line : split(hosts, '\n')) {
    std::istringstream words{line.substr(0, line.find('#'))};
    std::string word;
    words >> word;  // the address
    bool ours = false;
    std::string full;
    while (words >> word) {
      ours = ours || word == name || word.starts_with(name + ".");
      if (word.starts_with(name + ".") && word.size() > full.size()) full = word;
    }
    if (ours && !full.empty()) return full;
  }
  return name;
}

std::string full_host_name() {
  char buffer[256] = {};
  if (::gethostname(buffer, sizeof buffer - 1) != 0) return {};
  std::ifstream file{"/etc/hosts"};
  const std::string hosts{std::istreambuf_iterator<char>{file}, {}};
  return name_in_hosts(hosts, buffer);
}

}  // namespace acc::launcher
