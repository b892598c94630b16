#include "agent/status_line.hpp"

#include "common/clocks.hpp"

#include <utility>

namespace acc::agent {

namespace {

// What is over sooner isn't worth a line.
constexpr Millis kStatusDelay{500};
constexpr Millis kStatusPeriod{1'000};

}  // namespace

StatusLine::StatusLine(boost::asio::io_context& io, OutputHub& output,
                       std::function<StatusFacts()> facts)
    : output_{output}, facts_{std::move(facts)}, timer_{io} {}

void StatusLine::open(bool is_wanted, Phase now) {
  is_open_ = is_wanted && output_.can_show_status();
  shows_progress_ = is_open_ && !output_.is_bypassed();
  phase_changed(now);
}

void StatusLine::phase_changed(Phase now) {
  if (!is_open_) return;
  phase_ = now;
  phase_began_ = clock_now();
  // Not while workers run, until they have sent heartbeats: their first line must find a clean
  // terminal.
  progress_.clear();
  output_.set_status("");
  draw_after(kStatusDelay);
}

void StatusLine::close() {
  is_open_ = shows_progress_ = false;
  timer_.cancel();
}

void StatusLine::show_progress(std::string text) {
  if (!shows_progress_) return;
  const bool was_silent = progress_.empty();
  progress_ = std::move(text);
  if (progress_.empty()) output_.set_status("");
  if (was_silent && !progress_.empty()) draw_after(kStatusDelay);
}

void StatusLine::draw_after(Millis delay) {
  timer_.cancel();
  if (!is_open_ || (phase_ == Phase::running && progress_.empty())) return;
  timer_.expires_after(delay);
  timer_.async_wait([this](boost::system::error_code cancelled) {
    if (cancelled || !is_open_) return;
    output_.set_status(text());
    draw_after(kStatusPeriod);
  });
}

std::string StatusLine::text() const {
  constexpr std::size_t kUnknownWidth = 80;
  auto facts = facts_();
  facts.in_phase = std::chrono::duration_cast<Millis>(clock_now() - phase_began_);
  facts.progress = progress_;
  const std::size_t columns = output_.columns() == 0 ? kUnknownWidth : output_.columns();
  return status_text(facts, columns - 1);
}

}  // namespace acc::agent
