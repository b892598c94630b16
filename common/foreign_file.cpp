#include "common/foreign_file.hpp"

#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

namespace {

std::string folder_of(const std::string& file) {
  const auto slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

bool is_trap(const struct stat& link, const std::string& folder) {
  struct stat of_folder {};
  if (::stat(folder.empty() ? "." : folder.c_str(), &of_folder) != 0) return true;
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  return (of_folder.st_mode & kShared) == kShared && link.st_uid != ::geteuid() &&
         link.st_uid != of_folder.st_uid;
}

}  // namespace

FileBehindLinks file_behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::string file = path;
  for (int links = 0; links < kMostLinks; ++links) {
    // What is judged is what is read, whatever takes its name meanwhile.
    const UniqueFd link{::open(file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    struct stat info {};
    if (!link || ::fstat(link.get(), &info) != 0 || !S_ISLNK(info.st_mode)) return {file};
    if (is_trap(info, folder_of(file))) return {{}, EACCES};
    std::array<char, PATH_MAX> to{};
    const auto n = ::readlinkat(link.get(), "", to.data(), to.size());
    if (n < 0) return {{}, errno};
    const std::string_view target{to.data(), static_cast<std::size_t>(n)};
    file = (target.starts_with('/') ? "" : folder_of(file)) + std::string{target};
  }
  return {{}, ELOOP};
}

}  // namespace acc
