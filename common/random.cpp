#include "common/random.hpp"

#include <sys/random.h>

#include <chrono>
#include <cstdint>
#include <string_view>

namespace acc {

std::uint64_t random_number() {
  std::uint64_t bits = 0;
  // Early in boot the pool may be empty: then the low bits of the clock must do.
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    bits = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) *
           0x9E3779B97F4A7C15ULL;
  }
  return bits;
}

std::string random_name() {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyz234567";  // 32: five bits choose evenly
  std::string name;
  for (auto bits = random_number(); name.size() < 8; bits >>= 8U)
    name += kLetters[(bits >> 3U) & 31U];
  return name;
}

double random_fraction() { return static_cast<double>(random_number() >> 11U) * 0x1p-53; }

}  // namespace acc
