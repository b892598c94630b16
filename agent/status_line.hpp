#pragma once

#include "agent/output/output_hub.hpp"
#include "agent/status_text.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <string>

namespace acc::agent {

/// When the status line below the workers' output on a terminal is drawn. Where there is none nothing
/// here runs.
class StatusLine {
 public:
  /// @param facts  of now, but for the time in the phase and the progress
  StatusLine(boost::asio::io_context& io, OutputHub& output, std::function<StatusFacts()> facts);

  /// @param is_wanted  the user wants one, if there is a terminal
  void open(bool is_wanted, Phase now);
  void phase_changed(Phase now);
  /// It is drawn no more.
  void close();
  /// Whether it is also for running workers: none of them has the terminal itself.
  [[nodiscard]] bool shows_progress() const { return shows_progress_; }
  /// Of running workers; empty: nothing is known.
  void show_progress(std::string text);

 private:
  void draw_after(Millis delay);
  [[nodiscard]] std::string text() const;

  OutputHub& output_;
  std::function<StatusFacts()> facts_;
  boost::asio::steady_timer timer_;
  bool is_open_ = false;
  bool shows_progress_ = false;
  Phase phase_ = Phase::idle;
  Instant phase_began_{};
  std::string progress_;
};

}  // namespace acc::agent
