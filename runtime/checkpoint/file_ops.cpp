#include "runtime/checkpoint/file_ops.hpp"

#include "common/text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <acc/error.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

namespace acc::runtime::checkpoint {
namespace {

/// The kernel moves at most 2 GiB at a time.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

}  // namespace

void fail(std::string_view doing, const fs::path& path, int errnum) {
  throw Error{ErrorCode::system, std::string{doing} + " '" + printable(path.native(), 500) +
                                     "': " + std::generic_category().message(errnum)};
}

FileOps& FileOps::real() {
  static auto* const ops = new FileOps;  // never destroyed: checkpoints may outlive main
  return *ops;
}

UniqueFd FileOps::create(const fs::path& path) {
  UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (!fd) fail("create", path, errno);
  return fd;
}

void FileOps::write(int fd, std::span<const std::byte> bytes, std::uint64_t at,
                    const fs::path& path) {
  auto done = std::size_t{0};
  while (done < bytes.size()) {
    const auto n = ::pwrite(fd, bytes.data() + done, std::min(bytes.size() - done, kMostAtOnce),
                            static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", path, n < 0 ? errno : EIO);
    done += static_cast<std::size_t>(n);
  }
  // Starts writing to disk now and not at the sync: halves the time of a large checkpoint. Only a
  // hint; without support nothing is lost.
  if (bytes.size() >= (std::size_t{1} << 20)) {
    ::sync_file_range(fd, static_cast<off_t>(at), static_cast<off_t>(bytes.size()),
                      SYNC_FILE_RANGE_WRITE);
  }
}

void FileOps::sync(int fd, const fs::path& path) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) fail("sync", path, errno);
  }
}

void FileOps::make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) fail("make folder", path, errno);
}

void FileOps::rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const auto why = errno;
    fail("rename to '" + to.filename().native() + "' from", from, why);
  }
}

bool FileOps::exchange(const fs::path& one, const fs::path& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  const auto why = errno;
  fail("exchange with '" + other.filename().native() + "' of", one, why);
}

void FileOps::remove(const fs::path& path) {
  if (::remove(path.c_str()) != 0 && errno != ENOENT) fail("remove", path, errno);
}

void FileOps::sync_folder(const fs::path& path) {
  const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!fd) fail("open folder", path, errno);
  // Some network file systems have no sync of a folder: they have written the names already.
  while (::fsync(fd.get()) != 0) {
    if (errno == EINVAL || errno == EOPNOTSUPP) return;
    if (errno != EINTR) fail("sync folder", path, errno);
  }
}

int FileOps::lock(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  while (::fcntl(fd, F_OFD_SETLK, &whole) != 0)
    if (errno != EINTR) return errno == EACCES ? EWOULDBLOCK : errno;
  return 0;
}

void remove_tree(FileOps& files, const fs::path& path) {
  std::error_code failed;
  std::vector<fs::path> inside;
  if (fs::is_directory(fs::symlink_status(path, failed))) {
    for (fs::directory_iterator entry{path, failed}, end; !failed && entry != end;
         entry.increment(failed)) {
      inside.push_back(entry->path());
    }
    if (failed) fail("read folder", path, failed.value());
  }
  for (const auto& one : inside) remove_tree(files, one);
  files.remove(path);
}

UniqueFd open_for_reading(const fs::path& path, std::uint64_t& size) {
  // Non-blocking, so as not to hang on a pipe in place of a file.
  UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) fail("open", path, errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) fail("stat", path, errno);
  if (!S_ISREG(facts.st_mode)) fail("open", path, S_ISDIR(facts.st_mode) ? EISDIR : EINVAL);
  size = static_cast<std::uint64_t>(facts.st_size);
  return fd;
}

void read_at(int fd, std::span<std::byte> into, std::uint64_t at, const fs::path& path) {
  while (!into.empty()) {
    const auto n = ::pread(fd, into.data(), std::min(into.size(), kMostAtOnce), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path, errno);
    if (n == 0) {
      throw Error{ErrorCode::corrupt, "'" + printable(path.native(), 500) + "' ends at byte " +
                                          std::to_string(at) + ", " + std::to_string(into.size()) +
                                          " bytes too early"};
    }
    into = into.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
}

std::string read_small(const fs::path& path, std::uint64_t limit) {
  std::uint64_t size = 0;
  const auto fd = open_for_reading(path, size);
  if (size > limit) {
    throw Error{ErrorCode::corrupt, "'" + printable(path.native(), 500) + "' has " +
                                        std::to_string(size) + " bytes, more than " +
                                        std::to_string(limit)};
  }
  std::string text(size, '\0');
  read_at(fd.get(), std::as_writable_bytes(std::span{text}), 0, path);
  return text;
}

}  // namespace acc::runtime::checkpoint
