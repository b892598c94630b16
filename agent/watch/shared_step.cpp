#include "agent/watch/shared_step.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

void SharedStep::begin_round() {
  ++round_;
  text_.clear();
  known_ = Millis{0};
  asked_.reset();
}

// A step that is a little longer than the longest so far is no message's worth.
void SharedStep::note(Millis own, bool is_any_waiting, Instant now) {
  constexpr Millis kPause{2'000};
  if (asked_ && now - *asked_ < kPause) return;
  if (is_any_waiting || 10 * own > 11 * known_) ask(own, now);
}

void SharedStep::ask(Millis own, Instant now) {
  asked_ = now;
  const auto wanted = std::to_string(std::max(own, known_).count());
  exchange_(text_, wanted,
            alive_.bind([this, own, round = round_](std::optional<std::string> there) {
              if (round != round_ || !there) return;
              text_ = *there;
              known_ = Millis{parse_number<std::uint32_t>(text_).value_or(0)};
              if (known_ > own) on_longer_(known_);
            }));
}

}  // namespace acc::agent
