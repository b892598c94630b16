#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <string>

namespace acc::agent::daemon {

/// A listening unix socket with a name in the file system, removed at the end if it is still ours.
/// It appears with its right mode at once, in place of one that nothing listens at; one that is
/// served is refused. The caller excludes others that do the same (the state folder's lock).
class SocketFile {
 public:
  /// not_permitted: another user may replace what is in the folder of `path`, or one above it: it
  /// would receive what clients send. What is missing is left out.
  static Result<void> check_place(const std::string& path);
  /// Checks the place, too.
  static Result<SocketFile> open(const std::string& path, mode_t mode);
  SocketFile(SocketFile&&) noexcept = default;
  SocketFile& operator=(SocketFile&&) noexcept = default;
  ~SocketFile();

  /// The listening descriptor, once.
  [[nodiscard]] UniqueFd take() { return std::move(fd_); }
  /// False: another program removed or replaced the file, so that no client finds us.
  [[nodiscard]] bool is_in_place() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  SocketFile(UniqueFd fd, std::string path, dev_t device, ino_t inode)
      : fd_{std::move(fd)}, path_{std::move(path)}, device_{device}, inode_{inode} {}

  UniqueFd fd_;
  std::string path_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace acc::agent::daemon
