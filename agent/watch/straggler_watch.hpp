#pragma once

#include "common/duration.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace acc::agent {

/// Steps per second of each worker, and the workers that are much slower than the others (pure).
///
/// Workers that wait for each other in every step have the same pace, whichever of them is slow: no
/// rate tells them apart.
class StragglerWatch {
 public:
  void begin_round(std::uint32_t workers);
  /// The workers were held until now: no step that began before counts.
  void restart(Instant now);

  struct Straggler {
    LocalRank rank{0};
    double times_slower = 0;  ///< than the median of the others
    double steps_per_second = 0;
    Millis since{0};  ///< so long ago its window of slow steps began
    friend bool operator==(const Straggler&, const Straggler&) = default;
  };
  /// Takes in the heartbeats of all workers. @return those found now; each once, until it was as
  /// fast as the others for a minute
  std::vector<Straggler> look(const std::vector<heartbeat::Beat>& beats, Instant now);

  /// Over the last steps, from two seconds of them on; of a worker that is late with its next step the
  /// time of waiting counts, so that a hang isn't shown with the rate of before. Nothing: too few
  /// steps were seen, or it is in a section.
  [[nodiscard]] std::optional<double> steps_per_second(LocalRank worker, Instant now) const;

 private:
  struct Sample {
    std::uint64_t step = 0;
    std::uint64_t time_ns = 0;
  };
  struct Worker {
    std::deque<Sample> samples;  ///< the oldest first
    std::uint32_t pid = 0;       ///< of the program that has the page
    bool is_told = false;
    std::uint64_t fast_since_ns = 0;  ///< it can be compared, and is as fast as the others; 0: no
  };
  using At = std::deque<Sample>::const_iterator;
  struct Window {
    At first, last;
    [[nodiscard]] std::uint64_t steps() const { return last->step - first->step; }
    [[nodiscard]] std::uint64_t time_ns() const;
    [[nodiscard]] double seconds_a_step() const;
  };
  static void take(Worker& worker, const heartbeat::Beat& beat);
  /// The last steps that are enough for a pace; of fewer: all.
  [[nodiscard]] static Window last_steps(const Worker& worker, std::ptrdiff_t looks = 1);
  /// Nothing: too few since `compared_from_ns_`.
  [[nodiscard]] std::optional<Window> compared(const Worker& worker) const;
  /// Seconds a step of another one in the time of `window`: a pause of all, outside its own last
  /// steps, makes no straggler of the slower one.
  [[nodiscard]] double pace_meanwhile(const Worker& other, const Window& own,
                                      const Window& window) const;

  /// Median over the looks in the time of `window`, in seconds a step: a hiccup is in one of them.
  [[nodiscard]] double usual_pace(const Worker& worker, const Window& own,
                                  const Window& window) const;
  using Windows = std::vector<std::optional<Window>>;
  /// Seconds a step by its own last steps, up to which a worker isn't compared: most aren't slow,
  /// and a comparison costs as much as all others have samples.
  [[nodiscard]] static double suspect_pace(const Windows& windows);
  /// Than the others in the same time (of very many: than some of them), by the mean and by the
  /// median; nothing: none can be compared.
  [[nodiscard]] std::optional<double> times_slower(std::size_t worker,
                                                   const Windows& windows) const;
  /// Whether it is to be told now.
  static bool is_news(Worker& worker, double times, std::uint64_t now_ns);

  std::vector<Worker> workers_;
  /// Paces are compared over steps that began later. Before, a worker was in a section or started
  /// another program, for which others may have waited, or a debugger held them: some in a step
  /// that is longer for it.
  std::uint64_t compared_from_ns_ = 0;
};

}  // namespace acc::agent
