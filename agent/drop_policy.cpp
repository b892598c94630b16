#include "agent/drop_policy.hpp"

#include <algorithm>

namespace acc::agent {

DropPolicy::Verdict DropPolicy::ask(Instant now, std::size_t queued, Instant last_progress) {
  // Half empty, not just below the limit: else single lines would come through between the dropped
  // ones.
  if (dropping_ && queued <= limits_.queue_bytes / 2) dropping_ = false;
  if (dropping_) {
    last_drop_ = now;
    return Verdict::drop;
  }
  if (queued < limits_.queue_bytes) {
    full_since_.reset();
    return Verdict::accept;
  }
  if (!full_since_) full_since_ = now;
  hold_until_ = std::max(*full_since_, last_progress) + limits_.patience;
  const bool is_trusted = !last_drop_ || now >= *last_drop_ + limits_.distrust;
  if (is_trusted && now < hold_until_) return Verdict::hold;
  dropping_ = true;
  full_since_.reset();
  last_drop_ = now;
  return Verdict::drop;
}

}  // namespace acc::agent
