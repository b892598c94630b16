#include "agent/small_file.hpp"

#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace acc::agent {

std::string read_small_file(const std::string& path) {
  constexpr std::size_t kLongest = 1024 * 1024;
  const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text;
  char chunk[4096];
  while (fd && text.size() < kLongest) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n <= 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  return text;
}

bool write_small_file(const std::string& path, std::string_view text) {
  const UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace acc::agent
