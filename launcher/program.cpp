#include "launcher/program.hpp"

#include "common/program_path.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace acc::launcher {

// Of a pipe (/dev/stdin) nothing: what is read here the worker would miss.
std::string beginning_of_script(const std::string& path, std::size_t limit) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  std::string text(std::min(limit, static_cast<std::size_t>(info.st_size)), '\0');
  const auto got = file ? ::read(file.get(), text.data(), text.size()) : -1;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

static std::string first_line_of_script(const std::string& path) {
  const auto text = beginning_of_script(path, 256);
  return text.substr(0, text.find('\n'));
}

std::string interpreter_in_script(const std::string& path) {
  const auto line = first_line_of_script(path);
  if (!line.starts_with("#!")) return {};
  const auto begin = std::min(line.find_first_not_of(" \t", 2), line.size());
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

static bool is_elf(std::string_view beginning) {
  return beginning.starts_with(
      "\x7f"
      "ELF");
}

bool is_binary(const std::string& path) { return is_elf(first_line_of_script(path)); }

ScriptKind script_kind(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ScriptKind::missing;
  if (path.ends_with(".py") || !S_ISREG(info.st_mode))
    return ScriptKind::python;  // a folder with __main__.py is Python's
  const auto line = first_line_of_script(path);
  const bool other_interpreter = line.starts_with("#!") && line.find("python") == std::string::npos;
  if (!is_elf(line) && !other_interpreter) return ScriptKind::python;
  if (is_executable_file(path)) return ScriptKind::executable;
  return ScriptKind::not_executable;
}

int why_not_for_python(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  if (::access(path.c_str(), R_OK | X_OK) != 0) return errno;
  for (const auto& entry : fs::directory_iterator{path, failed}) {
    const auto name = entry.path().filename().string();  // __main__.py, .pyc, .so
    if (!name.starts_with("__main__.")) continue;
    return ::access(entry.path().c_str(), R_OK) == 0 ? 0 : errno;
  }
  return EISDIR;
}

std::string find_program(std::string_view name, const Environment& environment) {
  const auto set = environment.find("PATH");
  auto path =
      find_on_path(name, set == environment.end() ? std::string_view{kDefaultPath} : set->second);
  return is_executable_file(path) ? path : std::string{};
}

std::string find_interpreter(const Environment& environment, const std::string& program) {
  namespace fs = std::filesystem;
  const auto chosen = variable(environment, "PYTHON_EXEC");
  if (!chosen.empty()) return std::string{chosen};
  std::error_code failed;
  const auto own = fs::read_symlink(program, failed).parent_path();
  if (!failed && fs::exists(own.parent_path() / "pyvenv.cfg", failed) &&
      is_executable_file(own / "python"))
    return own / "python";
  for (const std::string_view home : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto folder = variable(environment, home);
    if (folder.empty()) continue;
    auto path = std::string{folder} + "/bin/python";
    if (is_executable_file(path)) return path;
  }
  for (const std::string_view name : {"python3", "python"}) {
    auto path = find_program(name, environment);
    if (!path.empty()) return path;
  }
  return "python3";
}

std::string own_program(const std::string& otherwise) {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? otherwise : path.string();
}

}  // namespace acc::launcher
