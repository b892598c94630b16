#pragma once

#include <fcntl.h>
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

}  // namespace acc::testing
