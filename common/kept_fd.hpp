#pragma once

#include "common/unique_fd.hpp"

#include <sys/stat.h>

#include <utility>

namespace acc {

/// Owns a file descriptor that stays open for long inside a program of others. Such a program
/// may close it, with all others that it doesn't know, and open a file that gets the same number:
/// that file is not closed here, and `is_ours` tells before it is used. Files without an inode of
/// their own (an eventfd; a pidfd before Linux 6.9) aren't told apart.
class KeptFd {
 public:
  KeptFd() noexcept = default;
  explicit KeptFd(UniqueFd fd) noexcept : fd_{std::move(fd)}, file_{file_of(fd_.get())} {}
  KeptFd(KeptFd&& other) noexcept = default;
  KeptFd& operator=(KeptFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::move(other.fd_);
    file_ = other.file_;
    return *this;
  }
  ~KeptFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  /// One system call; may be used in a signal handler.
  [[nodiscard]] bool is_ours() const noexcept { return fd_ && file_of(fd_.get()) == file_; }
  void reset() noexcept {
    if (!is_ours()) forget();
    fd_.reset();
  }
  /// Gives it away; empty: it isn't ours any more.
  [[nodiscard]] UniqueFd take() noexcept {
    if (!is_ours()) forget();
    return std::move(fd_);
  }
  /// Doesn't close it: it is known to be the program's.
  void forget() noexcept { (void)fd_.release(); }

 private:
  using File = std::pair<dev_t, ino_t>;
  static File file_of(int fd) noexcept {
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 ? File{facts.st_dev, facts.st_ino} : File{};
  }

  UniqueFd fd_;
  File file_{};
};

}  // namespace acc
