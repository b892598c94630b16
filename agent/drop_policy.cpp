#include "agent/drop_policy.hpp"

#include <algorithm>

namespace acc::agent {

bool DropPolicy::is_trusted(Instant now, std::uint64_t taken) const {
  return !last_drop_ || now >= *last_drop_ + limits_.distrust ||
         taken - taken_when_trusted_ >= std::min(limits_.trust_bytes, limits_.queue_bytes);
}

DropPolicy::Verdict DropPolicy::ask(Instant now, const Sink& sink) {
  // Half empty, not just below the limit: else single lines would come through between the dropped
  // ones.
  if (dropping_ && sink.queued <= limits_.queue_bytes / 2) dropping_ = false;
  if (dropping_) {
    last_drop_ = now;
    return Verdict::drop;
  }
  if (sink.queued < limits_.queue_bytes) {
    full_since_.reset();
    return Verdict::accept;
  }
  if (!full_since_) full_since_ = now;
  const bool may_not_have_begun = !last_drop_ && sink.taken <= limits_.proof_bytes;
  hold_until_ = std::max(*full_since_, sink.last_progress) +
                (may_not_have_begun ? limits_.first_patience : limits_.patience);
  const bool was_trusted = is_trusted(now, sink.taken);
  if (was_trusted && now < hold_until_) return Verdict::hold;
  // Not at each drop: a slow sink with a small queue would never get as far.
  if (was_trusted) taken_when_trusted_ = sink.taken;
  dropping_ = true;
  full_since_.reset();
  last_drop_ = now;
  return Verdict::drop;
}

}  // namespace acc::agent
