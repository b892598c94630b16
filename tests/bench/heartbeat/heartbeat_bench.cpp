// What a heartbeat costs the worker, beside the clock that it reads and the system call that it
// was:
//   acc-launch --num_processes 1 --no_python acc-bench-heartbeat
#include <time.h>
#include <unistd.h>

#include <acc/agent.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

/// Nanoseconds a call: the best of some tries, as any other figure is that of the machine's noise.
template <class Call>
double measure(std::uint64_t calls, Call call) {
  double best = 1e18;
  for (int i = 0; i < 7; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t step = 0; step < calls; ++step) call(step);
    const std::chrono::duration<double, std::nano> lasted =
        std::chrono::steady_clock::now() - begin;
    best = std::min(best, lasted.count() / static_cast<double>(calls));
  }
  return best;
}

}  // namespace

int main() {
  if (std::getenv("ACC_HEARTBEAT_PAGE") == nullptr) {
    std::fputs("acc-bench-heartbeat: start it by acc-launch --num_processes 1 --no_python\n",
               stderr);
    return 2;
  }
  const double beat = measure(10'000'000, [](std::uint64_t step) { acc::agent::heartbeat(step); });
  timespec now{};
  const double clock = measure(10'000'000, [&](std::uint64_t) {
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    asm volatile("" : : "m"(now));
  });
  const double call = measure(1'000'000, [](std::uint64_t) { static_cast<void>(::getppid()); });
  std::printf(
      "a heartbeat %.1f ns, the coarse clock alone %.1f ns, the cheapest system call %.1f ns\n",
      beat, clock, call);
  return 0;
}
