#include "common/made_folder.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>

namespace acc {

Result<void> make_with_parents(const std::string& folder, mode_t mode) {
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = folder.find('/', slash + 1);
    const auto part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST)
      return system_error(errno, "make the folder '" + part + "'");
  }
  struct stat info {};
  if (::stat(folder.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    return system_error(ENOTDIR, "make the folder '" + folder + "'");
  return {};
}

}  // namespace acc
