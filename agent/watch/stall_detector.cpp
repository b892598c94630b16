#include "agent/watch/stall_detector.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

// A worker that waits isn't still: libraries poll. Measured with torch 1.13, of one core: each
// group of gloo looks at its sockets every 10 ms, 0.15 %, with seven groups 0.65 %; one that waits
// in the rendezvous store for a rank that never comes asks it every 10 ms, 1.2 %. Slower machines
// take twice as much. A worker that does something uses tens of percent, and whole seconds where it
// computes a step or writes a checkpoint; one that waits for a disk, a pipe or its loader's
// processes moves bytes, which count by themselves, however few. What is left between is a worker
// that does little, and seldom, such as one that starts kernels for a GPU and sleeps until they are
// done: it works in bursts, so the share holds for the time since the latest look as well: a few
// tenths of a second in one go are work, also after an hour of silence. One that stays below that,
// and neither reads nor writes a byte for all of the time-out, can't be told from one that is
// stuck.
constexpr double kIdleShare = 0.03;
constexpr double kIdleLeastMs = 20;  // two ticks of the kernel's clock
// So a poller whose share is near the limit isn't told again and again.
constexpr double kEndOfStall = 2;  // times

bool has_idled(const std::vector<WorkerUsage>& usage, const std::vector<WorkerUsage>& before,
               double idle_ms) {
  if (usage.size() != before.size() || usage.empty()) return false;
  for (std::size_t i = 0; i < usage.size(); ++i) {
    // A child that has exited takes its share with it: less is a change, too.
    if (usage[i].io_bytes != before[i].io_bytes || usage[i].cpu_ms < before[i].cpu_ms ||
        static_cast<double>(usage[i].cpu_ms - before[i].cpu_ms) > idle_ms)
      return false;
  }
  return true;
}

}  // namespace

Millis StallDetector::interval() const {
  return std::clamp(timeout_ / 8, Millis{250}, Millis{10'000});
}

void StallDetector::leave_out(Millis held, const std::vector<WorkerUsage>& usage) {
  since_ += held;
  looked_ += held;
  if (usage.size() == seen_.size()) seen_ = latest_ = usage;
}

std::optional<Millis> StallDetector::look(const std::vector<WorkerUsage>& usage, Instant now) {
  const auto idle_ms = [&](Instant since) {
    const std::chrono::duration<double, std::milli> passed{now - since};
    return std::max(kIdleLeastMs, kIdleShare * passed.count()) * (is_told_ ? kEndOfStall : 1);
  };
  const auto quiet = std::chrono::duration_cast<Millis>(now - since_);
  const bool is_quiet =
      has_idled(usage, seen_, idle_ms(since_)) && has_idled(usage, latest_, idle_ms(looked_));
  latest_ = usage;
  looked_ = now;
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
