#include "agent/fanout/launch_status_line.hpp"

#include "agent/output/console_facts.hpp"
#include "agent/status_text.hpp"

#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kLineDelay{500};

}  // namespace

void LaunchStatusLine::draw() {
  if (!is_open_) return;
  const bool is_stopping = state_.stop_signal != 0;
  const auto seen = std::pair{state_.phase, is_stopping ? UINT64_MAX : course_.changes()};
  if (std::exchange(shown_, seen) != seen) in_phase_since_ = clock_now();
  const auto in_phase = std::chrono::duration_cast<Millis>(clock_now() - in_phase_since_);
  // What is over sooner isn't worth a line, but for the answer to a Ctrl-C.
  auto text = course_.status(state_, in_phase, clock_now());
  if (in_phase < kLineDelay && !is_stopping) text.clear();
  const auto window = window_size(STDOUT_FILENO, STDERR_FILENO).columns;
  if (!text.empty())
    text = cut_to(destinations_.program + ": " + text, (window == 0 ? 80U : window) - 1U);
  destinations_.set_status(std::move(text));
  destinations_.flush();
  timer_.expires_after(kLineDelay);
  timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) draw();
  }));
}

}  // namespace acc::agent
