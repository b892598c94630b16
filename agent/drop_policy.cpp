#include "agent/drop_policy.hpp"

#include <algorithm>

namespace acc::agent {

DropPolicy::Verdict DropPolicy::ask(Instant now, const Sink& sink) {
  if (dropping_since_ && sink.last_progress <= *dropping_since_) return Verdict::drop;
  dropping_since_.reset();
  if (sink.queued < limits_.queue_bytes) {
    full_since_.reset();
    return Verdict::accept;
  }
  // From the moment the queue is full: before that the sink may have had nothing to do.
  if (!full_since_) full_since_ = now;
  hold_until_ = std::max(*full_since_, sink.last_progress) + patience_;
  if (now < hold_until_) return Verdict::hold;
  dropping_since_ = now;
  full_since_.reset();
  return Verdict::drop;
}

}  // namespace acc::agent
