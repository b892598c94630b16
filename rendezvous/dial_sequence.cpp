#include "rendezvous/dial_sequence.hpp"

#include <algorithm>

namespace acc::rendezvous {

namespace {

constexpr Millis kFirstBackoff{50};
constexpr Millis kFirstBackoffAtStart{10};

}  // namespace

std::optional<bool> DialSequence::choose(const std::vector<HostPort>& targets,
                                         bool takes_redirect) {
  const bool is_redirected = redirect_.has_value() && takes_redirect;
  if (targets.empty() && !is_redirected) return std::nullopt;
  if (!targets.empty() && targets.front() != first_) {
    first_ = targets.front();
    next_ = 0;
  }
  chosen_ = is_redirected ? *redirect_ : targets[next_ % targets.size()];
  redirect_.reset();
  return is_redirected || chosen_ == targets.front();
}

bool DialSequence::has_untried(const std::vector<HostPort>& targets) const {
  const bool is_another = !targets.empty() && targets.front() != first_;
  return is_another || (targets.size() > 1 && next_ % targets.size() != 0);
}

bool DialSequence::redirected(const std::optional<HostPort>& to) {
  constexpr std::uint32_t kQuickRedirects = 4;
  redirects_ = to ? redirects_ + 1 : 0;
  if (to) redirect_ = to;
  return to && redirects_ <= kQuickRedirects;
}

Millis DialSequence::limit(bool at_start, bool is_first, Millis heartbeat_timeout,
                           Millis round_trip) const {
  if (at_start) return attempts_ == 0 ? kLongestLimit : 2 * kLongestLimit;
  // All but the first get less time, the lost coordinator among them: the lease runs out while this
  // node waits.
  const auto quick =
      std::clamp<Millis>(heartbeat_timeout / (is_first ? 2 : 5), Millis{100}, kLongestLimit);
  return std::max(quick, std::min<Millis>(3 * round_trip, 2 * kLongestLimit));
}

Millis DialSequence::backoff(bool at_start, Millis heartbeat_timeout) {
  const auto shift = std::min<std::size_t>(attempts_, 7);
  const auto first = at_start ? kFirstBackoffAtStart : kFirstBackoff;
  const auto ceiling = std::min<Millis>({first * (1 << shift), kLongestBackoff,
                                         std::max<Millis>(heartbeat_timeout / 5, kFirstBackoff)});
  random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const double fraction = static_cast<double>(random_ >> 11U) * 0x1.0p-53;
  return ceiling / 2 +
         Millis{static_cast<Millis::rep>(static_cast<double>(ceiling.count()) * fraction / 2)};
}

}  // namespace acc::rendezvous
