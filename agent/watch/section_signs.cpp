#include "agent/watch/section_signs.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

// At least one sign comes between the two readings, which are three quarters of the limit apart. A
// limit that is learned may be another one on each node, of 30 s at least.
constexpr int kSignsPerLimit = 8;
constexpr Millis kMostPause = std::chrono::seconds{3};

}  // namespace

void SectionSigns::begin_round() {
  ++round_;
  own_ = 0;
  given_.reset();
  is_waiting_ = false;
  early_.reset();
}

void SectionSigns::read(std::function<void(Count)> done) {
  hooks_.count(alive_.bind([this, round = round_, done = std::move(done)](Count all) {
    if (round != round_) return;
    if (all) *all -= own_;
    done(all);
  }));
}

void SectionSigns::note(const HangDetector::Look& look, Millis limit, Instant now) {
  if (!look.holds_others) given_.reset();
  if (look.holds_others &&
      (!given_ || now - *given_ >= std::min(limit / kSignsPerLimit, kMostPause))) {
    given_ = now;
    ++own_;
    hooks_.give();
  }
  if (!look.is_any_waiting) early_.reset();
  if (std::exchange(is_waiting_, look.is_any_waiting) || !look.is_any_waiting) return;
  read([this](Count others) {
    if (is_waiting_) early_ = others;
  });
}

void SectionSigns::ask(std::function<void(bool is_held)> done) {
  read([this, done = std::move(done)](Count others) {
    const auto before = std::exchange(early_, others);
    done(before && others && *before != *others);
  });
}

}  // namespace acc::agent
