#include "common/foreign_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
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

bool is_of_proc(const UniqueFd& link) {
  struct statfs system {};
  return ::fstatfs(link.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

bool is_planted(const struct stat& info, const std::string& file) {
  const auto folder = folder_of(file);
  struct stat of_folder {};
  if (::stat(folder.empty() ? "." : folder.c_str(), &of_folder) != 0) return true;
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  const bool is_shared = (of_folder.st_mode & kShared) == kShared;
  const bool is_foreign = info.st_uid != ::geteuid() && info.st_uid != of_folder.st_uid;
  return is_shared && (is_foreign || (S_ISREG(info.st_mode) && info.st_nlink > 1));
}

FileBehindLinks file_behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  FileBehindLinks found{path};
  for (int links = 0; links < kMostLinks; ++links) {
    // What is judged is what is read, whatever takes its name meanwhile.
    const UniqueFd link{::open(found.file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    struct stat info {};
    if (!link || ::fstat(link.get(), &info) != 0) return found;
    if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return found;
    if (is_planted(info, found.file)) return {{}, EACCES};
    if (!S_ISLNK(info.st_mode)) return found;
    if (is_of_proc(link)) return {found.file, 0, true};
    std::array<char, PATH_MAX> to{};
    const auto n = ::readlinkat(link.get(), "", to.data(), to.size());
    if (n < 0) return {{}, errno};
    const std::string_view target{to.data(), static_cast<std::size_t>(n)};
    auto next = (target.starts_with('/') ? "" : folder_of(found.file)) + std::string{target};
    found.file = std::move(next);
  }
  return {{}, ELOOP};
}

Result<UniqueFd> open_file_there(const std::string& path) {
  const auto failed = [&](int why) { return system_error(why, "write '" + path + "'"); };
  const auto behind = file_behind_links(path);
  if (behind.error != 0) return failed(behind.error);
  const int links = behind.is_open ? 0 : O_NOFOLLOW;  // none comes in between
  UniqueFd file{::open(behind.file.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | links)};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return failed(errno);
  if (!S_ISREG(info.st_mode)) return failed(EINVAL);
  if (!behind.is_open && is_planted(info, behind.file)) return failed(EACCES);
  return file;
}

}  // namespace acc
