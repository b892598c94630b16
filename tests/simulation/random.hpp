#pragma once

#include <cstdint>

namespace acc::simulation {

/// The only source of randomness, so that a seed repeats its history (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed} {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// 0 … n-1
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  /// first … last
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(last - first + 1)));
  }
  /// uniform in [0, 1)
  double fraction() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  bool chance(double p) { return fraction() < p; }
  /// Another stream: draws from it change nothing here.
  Random fork() { return Random{next()}; }

 private:
  std::uint64_t state_;
};

}  // namespace acc::simulation
