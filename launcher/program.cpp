#include "launcher/program.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace acc::launcher {

static bool may_run(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

static std::string first_line(const std::string& path) {
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  char buffer[256];
  const auto got = file ? ::read(file.get(), buffer, sizeof buffer) : -1;
  if (got <= 0) return {};
  const std::string_view text{buffer, static_cast<std::size_t>(got)};
  return std::string{text.substr(0, text.find('\n'))};
}

ScriptKind script_kind(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ScriptKind::missing;
  if (path.ends_with(".py") || !S_ISREG(info.st_mode))
    return ScriptKind::python;  // a folder with __main__.py is Python's
  const auto line = first_line(path);
  const bool elf = line.starts_with(
      "\x7f"
      "ELF");
  const bool other_interpreter = line.starts_with("#!") && line.find("python") == std::string::npos;
  if (!elf && !other_interpreter) return ScriptKind::python;
  if (may_run(path)) return ScriptKind::executable;
  return elf ? ScriptKind::not_executable : ScriptKind::python;
}

std::string find_program(std::string_view name, const Environment& environment) {
  if (name.find('/') != std::string_view::npos)
    return may_run(std::string{name}) ? std::string{name} : std::string{};
  for (const auto& folder : split(variable(environment, "PATH"), ':')) {
    auto path = (folder.empty() ? "." : folder) + "/" + std::string{name};
    if (may_run(path)) return path;
  }
  return {};
}

std::string find_interpreter(const Environment& environment) {
  const auto chosen = variable(environment, "PYTHON_EXEC");
  if (!chosen.empty()) return std::string{chosen};
  for (const std::string_view home : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto folder = variable(environment, home);
    if (folder.empty()) continue;
    auto path = std::string{folder} + "/bin/python";
    if (may_run(path)) return path;
  }
  for (const std::string_view name : {"python3", "python"}) {
    auto path = find_program(name, environment);
    if (!path.empty()) return path;
  }
  return "python3";
}

}  // namespace acc::launcher
