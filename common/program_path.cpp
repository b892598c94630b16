#include "common/program_path.hpp"

#include "common/text.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace acc {

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string find_on_path(std::string_view program, std::string_view path_variable) {
  if (program.find('/') != std::string_view::npos) return std::string{program};
  for (const auto& folder : split(path_variable, ':')) {
    std::string candidate = folder.empty() ? std::string{"."} : folder;
    candidate += '/';
    candidate += program;
    if (is_executable_file(candidate)) return candidate;
  }
  return {};
}

}  // namespace acc
