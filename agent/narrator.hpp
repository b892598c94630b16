#pragma once

#include "agent/containment.hpp"
#include "agent/report.hpp"
#include "agent/supervisor.hpp"

#include <functional>
#include <string>

namespace acc::agent {

/// Says in one line each what happens to the job, on stderr. `--quiet` keeps only what needs
/// attention.
class Narrator {
 public:
  Narrator(std::function<void(std::string_view)> say, bool quiet, bool color);

  void error(const std::string& text) const;
  void warning(const std::string& text) const;
  void note(const std::string& text) const;
  /// A note that --quiet leaves.
  void announce(const std::string& text) const;
  void failure(const FailureReport& failure) const;
  void restart(const TellRestart& told) const;
  void start_retry(const TellStartRetry& told, const std::string& words) const;
  void stopping(const TellStopping& told) const;
  void no_restart(const TellNoRestart& told) const;
  void hurry(const TellHurry& told) const;
  void kept_interrupt() const;
  void killing(const TellKilling& told, const std::vector<LeftOver>& alive) const;
  void left_over(const std::vector<LeftOver>& processes) const;
  void degraded(const Losses& losses) const;

 private:
  void line(const std::string& text, bool matters) const;

  std::function<void(std::string_view)> say_;
  bool quiet_;
  bool color_;
};

}  // namespace acc::agent
