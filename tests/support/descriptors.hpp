#pragma once

#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <vector>

namespace acc::testing {

/// The descriptors that `make` opens.
template <class Make>
std::vector<int> descriptors_of(Make make) {
  const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  constexpr int kMost = 200;
  std::array<bool, kMost> before{};
  for (int fd = 0; fd < kMost; ++fd) before.at(static_cast<std::size_t>(fd)) = is_open(fd);
  make();
  std::vector<int> opened;
  for (int fd = 0; fd < kMost; ++fd)
    if (!before.at(static_cast<std::size_t>(fd)) && is_open(fd)) opened.push_back(fd);
  return opened;
}

// As a program does it that knows nothing of the owners: not by the functions that
// ThreadSanitizer compares with what other threads do at the same descriptor.
inline void close_of_others(int fd) { ::syscall(SYS_close, fd); }
inline void replace_of_others(int fd, int by) { ::syscall(SYS_dup3, by, fd, 0); }

/// Empty files of the program's under the numbers of others' descriptors.
inline void put_files_in_place_of(const std::vector<int>& fds) {
  for (const int fd : fds) {
    const UniqueFd users{::memfd_create("users", 0)};
    replace_of_others(fd, users.get());
  }
}
/// @return 0: they are open and empty, as they were made; else a code for _exit()
inline int harm_to_files(const std::vector<int>& fds) {
  int harm = fds.empty() ? 8 : 0;
  for (const int fd : fds) {
    struct stat facts {};
    if (::fstat(fd, &facts) != 0) harm |= 2;
    if (facts.st_size != 0) harm |= 4;
  }
  return harm;
}

}  // namespace acc::testing
