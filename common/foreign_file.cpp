#include "common/foreign_file.hpp"

#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

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

}  // namespace acc
