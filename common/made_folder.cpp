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
  return {};
}

}  // namespace acc
