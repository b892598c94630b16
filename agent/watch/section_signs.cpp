#include "agent/watch/section_signs.hpp"

#include <algorithm>

namespace acc::agent {

namespace {

// Between signs, and between readings. A limit that is learned may be another one on each node, of
// 30 s at least.
Millis pause_of(Millis limit) {
  constexpr int kSignsPerLimit = 8;
  constexpr Millis kMost = std::chrono::seconds{3};
  return std::min(limit / kSignsPerLimit, kMost);
}

}  // namespace

void SectionSigns::begin_round() {
  ++round_;
  own_ = 0;
  given_.reset();
  waits_.reset();
  asked_.reset();
  answered_.reset();
  others_.reset();
}

void SectionSigns::note(const HangDetector::Look& look, Millis limit, Instant now) {
  const Millis pause = pause_of(limit);
  if (look.in_section.empty()) {
    given_.reset();
  } else if (!given_ || now - *given_ >= pause) {
    given_ = now;
    ++own_;
    hooks_.give();
  }
  if (!look.is_any_waiting) {
    waits_.reset();
    asked_.reset();
    answered_.reset();
    others_.reset();
    return;
  }
  if (!waits_) waits_ = now;
  if (!asked_ || now - *asked_ >= pause) read(now);
}

void SectionSigns::read(Instant now) {
  asked_ = now;
  hooks_.count(alive_.bind([this, round = round_, now](Count all) {
    if (round != round_ || !waits_ || !all) return;
    const auto others = *all - own_;
    const auto before = std::exchange(others_, others);
    answered_ = now;
    on_answer_(before && *before != others);
  }));
}

bool SectionSigns::is_known(Millis limit, Instant now) const {
  constexpr int kPauses = 3;
  constexpr Millis kLate = std::chrono::seconds{2};  // of looks, which are a second apart
  const Millis fresh = std::min(kPauses * pause_of(limit) + kLate, limit / 2);
  if (answered_ && now - *answered_ <= fresh) return true;
  const auto since = answered_ ? answered_ : waits_;
  return since && now - *since >= 2 * limit;
}

}  // namespace acc::agent
