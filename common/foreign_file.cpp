#include "common/foreign_file.hpp"

#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>

namespace acc {

bool holds_other_text(const std::string& path, std::string_view begin) {
  struct stat info {};
  // Looked at first: opening a pipe would wait for its writer.
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return false;
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  std::array<char, 256> bytes{};
  const auto n = file ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
  if (n <= 0) return false;
  std::string text;
  for (const char c : std::string_view{bytes.data(), static_cast<std::size_t>(n)})
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') text += c;
  return !text.empty() && !text.starts_with(begin);
}

std::string file_behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::string file = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::array<char, PATH_MAX> to{};
    const auto n = ::readlink(file.c_str(), to.data(), to.size());
    if (n < 0) return file;
    const std::string_view target{to.data(), static_cast<std::size_t>(n)};
    const auto slash = file.rfind('/');
    const bool is_relative = !target.starts_with('/') && slash != std::string::npos;
    file = (is_relative ? file.substr(0, slash + 1) : "") + std::string{target};
  }
  return path;
}

}  // namespace acc
