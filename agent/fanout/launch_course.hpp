#pragma once

#include "agent/fanout/fan_out.hpp"
#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent {

/// What a job on several hosts does, as the events of its hosts tell (docs/events.md), for the
/// status line (pure). An event is foreign: what is no event changes nothing.
class LaunchCourse {
 public:
  explicit LaunchCourse(std::vector<std::string> hosts);

  void take(HostIndex host, std::string_view event);
  /// Without a line's end; empty: workers run, and nothing more is known.
  [[nodiscard]] std::string status(const FanOutState& state, Millis in_phase,
                                   Instant now = {}) const;
  [[nodiscard]] bool is_at_work(HostIndex host) const {
    return hosts_[host].doing == Doing::running;
  }
  /// Its workers are being stopped, or have succeeded.
  [[nodiscard]] bool is_ending(HostIndex host) const {
    return hosts_[host].doing == Doing::stopping || hosts_[host].doing == Doing::done;
  }
  /// Changes with each change of what the hosts do; the time since then is `in_phase`.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  enum class Doing {
    nothing,
    running,
    stopping,
    between,  ///< two rounds
    done,     ///< its workers have exited with 0; those of other hosts may run
    ended
  };
  struct Progress {
    std::uint64_t rank = 0;
    std::uint64_t step = 0;
    std::optional<double> steps_per_second;
  };
  struct Host {
    std::string name;
    Doing doing = Doing::nothing;
    std::uint64_t workers = 0;
    std::uint64_t alive = 0;
    bool has_failed = false;  ///< a worker of this round
    std::optional<Progress> progress;
  };
  void set(Host& host, Doing doing);
  [[nodiscard]] std::size_t count(Doing doing) const;
  [[nodiscard]] std::string progress_words() const;
  [[nodiscard]] std::string waiting_words(const FanOutState& state) const;
  [[nodiscard]] std::string stopping_words(const FanOutState& state) const;

  std::vector<Host> hosts_;
  std::string reason_;  ///< of the last restart
  std::uint64_t changes_ = 0;
};

/// "n3: no answer for 20 s, given up after 1 min".
[[nodiscard]] std::string silence_words(const std::string& host, const HostSilence& silence,
                                        Instant now);

}  // namespace acc::agent
