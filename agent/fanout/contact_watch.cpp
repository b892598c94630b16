#include "agent/fanout/contact_watch.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

ContactWatch::Finding ContactWatch::look(Instant now, Instant heard, bool has_unread) {
  // We stood still, or our reader does: what it had to say meanwhile is still on its way.
  if (now - looked_ > 2 * kEvery || has_unread) since_ = now;
  looked_ = now;
  since_ = std::max(since_, heard);
  Finding finding;
  finding.asks = !std::exchange(is_asked_, true);
  if (now - since_ >= kSilence) finding.silent_since = since_;
  return finding;
}

}  // namespace acc::agent
