#include "agent/small_file.hpp"

#include "common/foreign_file.hpp"
#include "common/random.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

namespace acc::agent {

// Puts into `text` what can be read. False: errno says why that isn't all.
static bool read_into(std::string& text, const std::string& path) {
  constexpr std::size_t kLongest = std::size_t{1} << 20U;
  // Not blocking: a FIFO in its place, planted or by mistake, reads as empty.
  const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) return false;
  char chunk[4096];
  while (text.size() < kLongest) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0) return false;
    if (n == 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  return true;
}

std::string read_small_file(const std::string& path) {
  std::string text;
  (void)read_into(text, path);
  return text;
}

Result<std::string> read_if_there(const std::string& path) {
  std::string text;
  if (read_into(text, path)) return text;
  if (errno == ENOENT || errno == ENOTDIR || errno == ESRCH) return std::string{};
  return system_error(errno, "read '" + path + "'");
}

static Result<void> write_all(int fd, std::string_view text, const std::string& path) {
  constexpr int kPatienceMs = 30'000;
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    pollfd full{fd, POLLOUT, 0};  // a pipe whose reader is slow
    if (n < 0 && errno == EAGAIN && ::poll(&full, 1, kPatienceMs) > 0) continue;
    if (n < 0) return system_error(errno, "write '" + path + "'");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// A device or a pipe.
static Result<void> write_in_place(const std::string& path, const FileBehindLinks& behind,
                                   std::string_view text) {
  const int links = behind.file == path && !behind.is_open ? O_NOFOLLOW : 0;
  // O_CREAT: the kernel then refuses another user's pipe in a folder as /tmp (fs.protected_fifos).
  const UniqueFd fd{
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | links, 0644)};
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return system_error(errno, "write '" + path + "'");
  if (!behind.is_open && is_planted(info, behind.file))
    return system_error(EACCES, "write '" + path + "'");
  return write_all(fd.get(), text, path);
}

Result<void> write_whole_file(const std::string& path, std::string_view text, std::size_t reserve,
                              mode_t mode) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  const auto behind = file_behind_links(path);
  if (behind.error != 0) return system_error(behind.error, "write '" + path + "'");
  if (exists && !S_ISREG(info.st_mode)) return write_in_place(path, behind, text);
  if (behind.is_open) return overwrite_file(path, text);  // our caller reads what was opened
  const std::string beside = behind.file + ".tmp-" + random_name();
  UniqueFd fd{::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)};
  if (!fd) return system_error(errno, "write '" + path + "'");
  auto written = write_all(fd.get(), text, path);
  if (written.has_value() && reserve > 0)  // not every file system can, and a full one won't
    ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(reserve));
  // Where a server has no room, or a quota is used up, a network file system says so only here.
  const bool is_closed = ::close(fd.release()) == 0 || errno == EINTR;
  if (written.has_value() && !is_closed) written = system_error(errno, "write '" + path + "'");
  if (written.has_value() && ::rename(beside.c_str(), behind.file.c_str()) != 0) {
    written = system_error(errno, "write '" + path + "'");
  }
  if (written.has_error()) ::unlink(beside.c_str());
  return written;
}

Result<void> overwrite_file(const std::string& path, std::string_view text) {
  const auto file = open_file_there(path);
  if (file.has_error()) return file.error();
  const int fd = file->get();
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error(errno, "write '" + path + "'");
  std::string padded{text};  // JSON and a reader of lines take blanks at the end
  padded.resize(std::max(padded.size(), static_cast<std::size_t>(info.st_size)), ' ');
  auto written = write_all(fd, padded, path);
  if (written.has_value() && ::ftruncate(fd, static_cast<off_t>(text.size())) != 0)
    written = system_error(errno, "write '" + path + "'");
  return written;
}

bool write_small_file(const std::string& path, std::string_view text) {
  const UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace acc::agent
