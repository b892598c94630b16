#include "agent/output/log_file.hpp"

#include "agent/output/run_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace acc::agent {

namespace {

// A line may run over the limit by this much before it is cut.
constexpr std::size_t kReach = std::size_t{64} << 10U;

std::string numbered(const std::string& path, std::uint32_t number) {
  return number == 0 ? path : path + "." + std::to_string(number);
}

}  // namespace

Result<void> LogFile::open() {
  if (const int why = try_open(); why != 0) return system_error(why, "open '" + path_ + "'");
  return {};
}

// A user who may write to --log_dir could put a link to a file of ours there, or a FIFO that nobody
// reads, for which open() would wait.
int LogFile::open_regular() {
  constexpr int kFlags =
      O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd fd{::open(path_.c_str(), kFlags, 0644)};
  if (!fd) return errno == ENXIO ? EINVAL : errno;
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno;
  const bool is_file = S_ISREG(info.st_mode) && info.st_nlink <= 1;
  if (!is_file && !S_ISCHR(info.st_mode)) return EINVAL;
  if (is_file && !was_open_ && ::ftruncate(fd.get(), 0) != 0) return errno;
  fd_ = std::move(fd);
  return 0;
}

int LogFile::try_open() {
  int why = open_regular();
  if (why == ENOENT) {
    const auto parent = std::filesystem::path{path_}.parent_path().string();
    const auto made = make_worker_folder(parent, is_private_);
    if (!made) return made.error().errnum;
    why = open_regular();
  }
  was_open_ = was_open_ || why == 0;
  return why;
}

// By hand, to make room, or by what cleans /tmp: nobody could read what else is written there, and
// the disk keeps it until the end.
bool LogFile::is_removed() const {
  struct stat info {};
  return ::fstat(fd_.get(), &info) == 0 && info.st_nlink == 0;
}

LogFile::Written LogFile::append(std::string_view bytes) {
  if (fd_ && is_removed()) {
    fd_.reset();
    size_ = 0;
    at_line_start_ = true;
  }
  if (!fd_)
    if (const int why = try_open(); why != 0) return {0, why};
  if (rotation_.bytes == 0) return write_all(bytes);
  Written all;
  while (all.bytes < bytes.size() && all.error == 0) {
    const std::string_view rest = bytes.substr(all.bytes);
    const std::size_t room = room_for(rest);
    if (room == 0) {
      rotate();
      continue;
    }
    const Written some = write_all(rest.substr(0, room));
    all.bytes += some.bytes;
    all.error = some.error;
  }
  return all;
}

// How much of `bytes` still goes into this file; 0: time for a new one.
std::size_t LogFile::room_for(std::string_view bytes) const {
  const std::uint64_t room = rotation_.bytes > size_ ? rotation_.bytes - size_ : 0;
  if (bytes.size() <= room) return bytes.size();
  if (room > 0) {
    const std::size_t last = bytes.substr(0, static_cast<std::size_t>(room)).rfind('\n');
    if (last != std::string_view::npos) return last + 1;
  }
  if (size_ > 0 && at_line_start_) return 0;
  // In the middle of a line: to its end where that is near, else cut hard.
  if (size_ >= rotation_.bytes + kReach) return 0;
  const std::size_t reach = static_cast<std::size_t>(rotation_.bytes + kReach - size_);
  const std::size_t end = bytes.substr(0, reach).find('\n');
  return end != std::string_view::npos ? end + 1 : std::min(bytes.size(), reach);
}

LogFile::Written LogFile::write_all(std::string_view bytes) {
  Written done;
  while (done.bytes < bytes.size()) {
    const ssize_t n = ::write(fd_.get(), bytes.data() + done.bytes, bytes.size() - done.bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      done.error = n < 0 ? errno : ENOSPC;
      break;
    }
    done.bytes += static_cast<std::size_t>(n);
  }
  size_ += done.bytes;
  if (done.bytes > 0) at_line_start_ = bytes[done.bytes - 1] == '\n';
  return done;
}

void LogFile::rotate() {
  size_ = 0;  // also when the renaming fails: then it goes on in the same file and tries again at
              // the next limit
  if (rotation_.keep == 0) {
    if (::ftruncate(fd_.get(), 0) != 0)
      at_line_start_ = true;  // it grows on: better than losing lines
    return;
  }
  // Else each limit would cost one of the parts that are kept, and make none.
  if (::access(path_.c_str(), F_OK) != 0) return;
  for (std::uint32_t n = rotation_.keep; n > 0; --n)
    if (::rename(numbered(path_, n - 1).c_str(), numbered(path_, n).c_str()) != 0 && n == 1) return;
  const int fresh = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0644);
  if (fresh >= 0)
    fd_.reset(fresh);
  else
    ::rename(numbered(path_, 1).c_str(), path_.c_str());
}

}  // namespace acc::agent
