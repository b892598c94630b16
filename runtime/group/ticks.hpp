#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

/// Cheap monotonic counter for the flight recorder: about 8 ns a reading with an invariant
/// processor counter, else the steady clock.
namespace acc::runtime::ticks {

#if defined(__x86_64__)
/// Is the counter invariant over all power states? Virtual machines may say no.
inline bool even() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}
inline const bool kEven = even();
#else
inline constexpr bool kEven = false;
#endif

inline std::uint64_t now() noexcept {
#if defined(__x86_64__)
  if (kEven) return __rdtsc();
#endif
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// Converts readings to times of the steady clock, by two readings of both some time apart.
class Scale {
 public:
  /// A reading and the time at the same moment.
  struct Mark {
    std::uint64_t ticks = now();
    std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  };
  Scale(const Mark& from, const Mark& to) noexcept : to_{to} {
    const auto ticked = static_cast<double>(to.ticks - from.ticks);
    const auto passed = static_cast<double>((to.time - from.time).count());
    if (kEven && ticked > 0) nanos_per_tick_ = passed / ticked;
  }
  [[nodiscard]] std::chrono::steady_clock::time_point time_of(
      std::uint64_t reading) const noexcept {
    const auto back = static_cast<double>(static_cast<std::int64_t>(to_.ticks - reading));
    return to_.time - std::chrono::nanoseconds{static_cast<std::int64_t>(back * nanos_per_tick_)};
  }

 private:
  Mark to_;
  double nanos_per_tick_ = 1;
};

}  // namespace acc::runtime::ticks
