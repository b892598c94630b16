#include "agent/output/drop_policy.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {
// Of what earlier rounds left in the queue so much may be added to the limit: a job that restarts
// while its reader pauses loses nothing, and memory stays bounded.
constexpr std::size_t kCarried = std::size_t{12} << 20U;
// Asked so late this process has stood still, too (SIGSTOP, a paused container, a suspended
// machine), and the reader may have had no time.
constexpr Millis kLate{5'000};
}  // namespace

DropPolicy::Verdict DropPolicy::ask(Instant now, const Queue& queue) {
  if (dropping_since_ && queue.last_progress <= *dropping_since_) return Verdict::drop;
  dropping_since_.reset();
  const bool is_late = std::exchange(has_held_, false) && now - hold_until_ > kLate;
  if (queue.bytes < limits_.queue_bytes) {
    full_since_.reset();
    return Verdict::accept;
  }
  // From the moment the queue is full: before that the destination may have had nothing to do.
  if (!full_since_ || is_late || is_suspended_) full_since_ = now;
  hold_until_ = std::max(*full_since_, queue.last_progress) + patience_;
  if (now < hold_until_ || is_suspended_) {
    has_held_ = true;
    return Verdict::hold;
  }
  dropping_since_ = now;
  full_since_.reset();
  return Verdict::drop;
}

bool DropPolicy::admit(Origin origin, std::size_t bytes, std::size_t queued) {
  if (origin != Origin::agent && is_dropping()) return false;
  if (origin == Origin::worker_end) {
    reserved_ += bytes;  // with prefixes and fields: it takes no room from others
    return true;
  }
  // So far beyond the limit not even unfinished lines and our own may come in.
  return queued <= limits_.queue_bytes + std::max(limits_.queue_bytes, reserved_) + carried_;
}

void DropPolicy::resume() {
  is_suspended_ = false;
  full_since_.reset();
}

void DropPolicy::begin_round(std::size_t queued) {
  reserved_ = 0;
  carried_ = std::min(queued, kCarried);
  patience_ = limits_.patience;
}

}  // namespace acc::agent
