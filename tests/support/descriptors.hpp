#pragma once

#include <fcntl.h>

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

}  // namespace acc::testing
