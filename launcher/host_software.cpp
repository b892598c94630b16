#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace acc::launcher {

namespace fs = std::filesystem;

namespace {

Environment path_only() {
  const char* path = std::getenv("PATH");
  return {{"PATH", path == nullptr ? "" : path}};
}

/// PREFIX/lib/pythonX.Y/{site,dist}-packages of the interpreter, Debian's
/// /usr/lib/python3/dist-packages, PYTHONPATH.
std::vector<fs::path> package_folders(const std::string& interpreter) {
  std::vector<fs::path> folders;
  if (const char* path = std::getenv("PYTHONPATH")) {
    for (const auto& part : split(path, ':')) {
      if (!part.empty()) folders.emplace_back(part);
    }
  }
  const auto found = find_program(interpreter, path_only());
  std::error_code ignored;
  // A virtual environment's python is a link to the system's: its own prefix counts first, then
  // where it leads.
  for (const auto& program : {fs::path{found}, fs::canonical(found, ignored)}) {
    const auto prefix = program.parent_path().parent_path();
    for (const auto& lib : {prefix / "lib", prefix / "local" / "lib", prefix / "lib64"}) {
      for (const auto& version : fs::directory_iterator{lib, ignored}) {
        if (!version.path().filename().string().starts_with("python3")) continue;
        folders.push_back(version.path() / "site-packages");
        folders.push_back(version.path() / "dist-packages");
      }
    }
  }
  return folders;
}

/// Of "torch-2.4.0.dist-info", "numpy-1.24.2-py3.11.egg-info": what stands behind the first dash.
std::string version_in_name(const fs::path& folder, std::string_view package,
                            std::string_view ending) {
  const auto start = std::string{package} + "-";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator{folder, ignored}) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(start) || !name.ends_with(ending)) continue;
    const auto version = name.substr(start.size(), name.size() - start.size() - ending.size());
    return version.substr(0, version.find("-py"));
  }
  return {};
}

/// Of a line `__version__ = '1.13.0a0'`, perhaps with a type, in a file that isn't run.
std::string assigned_version(const fs::path& file) {
  constexpr std::string_view kName = "__version__";
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kName)) continue;
    const auto equals = line.find('=', kName.size());
    const auto value =
        trim(std::string_view{line}.substr(equals == std::string::npos ? line.size() : equals + 1));
    const bool is_quoted = !value.empty() && (value[0] == '\'' || value[0] == '"');
    const auto end = is_quoted ? value.find(value[0], 1) : std::string_view::npos;
    if (end != std::string_view::npos) return std::string{value.substr(1, end - 1)};
  }
  return {};
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

bool has_module(const std::string& interpreter, std::string_view module) {
  std::error_code ignored;
  for (const auto& folder : package_folders(interpreter)) {
    if (fs::exists(folder / module / "__init__.py", ignored)) return true;
  }
  return false;
}

std::string installed_version(const std::string& interpreter, std::string_view package) {
  std::error_code ignored;
  for (const auto& folder : package_folders(interpreter)) {
    if (!fs::exists(folder / package / "__init__.py", ignored)) continue;
    if (const auto found = version_in_name(folder, package, ".dist-info"); !found.empty())
      return found;
    if (const auto found = assigned_version(folder / package / "version.py"); !found.empty())
      return found;
    const auto found = version_in_name(folder, package, ".egg-info");
    return found.empty() ? "0" : found;
  }
  return {};
}

}  // namespace acc::launcher
