#include "agent/watch/stall_detector.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

// A process that only waits wakes up for timers of its libraries: a thousandth of the time.
constexpr double kIdleShare = 0.001;
constexpr double kIdleLeastMs = 20;  // two ticks of the kernel's clock
// gloo looks at its sockets every 10 ms, which takes about as much as that. A stall that was told has
// ended when it is clear that the workers do more.
constexpr double kEndOfStall = 10;  // times

}  // namespace

Millis StallDetector::interval() const {
  return std::clamp(timeout_ / 8, Millis{250}, Millis{30'000});
}

void StallDetector::leave_out(Millis held, const std::vector<WorkerUsage>& usage) {
  since_ += held;
  if (usage.size() == seen_.size()) seen_ = usage;
}

std::optional<Millis> StallDetector::look(const std::vector<WorkerUsage>& usage, Instant now) {
  const auto quiet = std::chrono::duration_cast<Millis>(now - since_);
  const double idle_ms = std::max(kIdleLeastMs, kIdleShare * static_cast<double>(quiet.count())) *
                         (is_told_ ? kEndOfStall : 1);
  bool is_quiet = usage.size() == seen_.size() && !usage.empty();
  for (std::size_t i = 0; is_quiet && i < usage.size(); ++i) {
    // A child that has exited takes its share with it: less is a change, too.
    is_quiet = usage[i].io_bytes == seen_[i].io_bytes && usage[i].cpu_ms >= seen_[i].cpu_ms &&
               static_cast<double>(usage[i].cpu_ms - seen_[i].cpu_ms) <= idle_ms;
  }
  if (!is_quiet) {
    seen_ = usage;
    since_ = now;
    is_told_ = false;
    return std::nullopt;
  }
  if (timeout_ == Millis{0} || quiet < timeout_) return std::nullopt;
  // The next time-out is judged by itself: over a long stall the work of waking timers adds up.
  seen_ = usage;
  since_ = now;
  if (std::exchange(is_told_, true)) return std::nullopt;
  return quiet;
}

}  // namespace acc::agent
