#include "agent/preload/waiting_course.hpp"

#include <utility>

namespace acc::agent::preload {

void WaitingCourse::round_started(std::uint32_t workers, Instant now) {
  wanted_ = workers;
  is_paused_ = losses_ > kMostLosses;
  if (!is_paused_ && !asked_ && waiting_ < wanted_) due_ = now + kQuiet;
}

void WaitingCourse::pause() {
  is_paused_ = true;
  due_.reset();
}

std::uint32_t WaitingCourse::on_due(std::uint64_t free_bytes, std::uint64_t preloader_bytes,
                                    Instant now) {
  due_.reset();
  if (is_paused_ || asked_ || waiting_ >= wanted_) return 0;
  const std::uint64_t needed =
      own_bytes_ != 0 ? own_bytes_ * (wanted_ - waiting_) : preloader_bytes;
  if (needed > free_bytes / kPartOfMemory) {
    pause();
    return 0;
  }
  asked_ = now;
  return waiting_ + 1;
}

void WaitingCourse::on_waits(std::uint64_t own_bytes, Instant now) {
  if (!asked_) return;
  const auto took = now - *std::exchange(asked_, std::nullopt);
  ++waiting_;
  own_bytes_ = own_bytes;
  if (!is_paused_ && waiting_ < wanted_) due_ = now + took * kRestFactor;
}

void WaitingCourse::start_anew(Instant now) {
  waiting_ = 0;
  asked_.reset();
  due_.reset();
  if (!is_paused_) due_ = now + kQuiet;
}

void WaitingCourse::on_lost(Instant now) {
  if (++losses_ > kMostLosses) is_paused_ = true;
  start_anew(now);
}

void WaitingCourse::on_preloader_ended(Instant now) { start_anew(now); }

void WaitingCourse::take() {
  waiting_ = 0;
  asked_.reset();
  pause();
}

WaitingCourse::Phase WaitingCourse::phase() const {
  if (asked_) return Phase::growing;
  if (waiting_ == 0) return Phase::none;
  return waiting_ < wanted_ ? Phase::resting : Phase::complete;
}

}  // namespace acc::agent::preload
