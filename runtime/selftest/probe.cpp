#include "runtime/selftest/probe.hpp"

#include <acc/cuda.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

namespace acc::selftest {

int probe() {
  try {
    const int version = cuda::nccl_version();
    // 22809: major, minor, patch; before 2.9 with two digits less.
    const int major = version >= 10000 ? version / 10000 : version / 1000;
    const int rest = version >= 10000 ? version % 10000 : version % 1000;
    std::printf("nccl %d.%d.%d %s\n", major, rest / 100, rest % 100, cuda::nccl_path().c_str());
  } catch (const std::exception& error) {
    std::string why = error.what();
    std::ranges::replace(why, '\n', ' ');
    std::printf("no-nccl %s\n", why.c_str());
  }
  return 0;
}

}  // namespace acc::selftest
