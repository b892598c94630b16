#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace acc::runtime::training {

/// What is known of the means that gradients hold where reductions scatter them, since the step
/// began (GradientReducer::zero_gradients), and how many reductions a step has. A backward that
/// adds to a part of the means and to sums of this rank elsewhere would be averaged with them, so
/// only the last reduction of a step is scattered: that of the number that an earlier step had. The
/// first step tells it. Every rank makes the same calls, so it needs no communication.
/// Where gather_means() comes before each backward, a step may have more of them than expected: so
/// the number is that of the last few steps. Else it is the largest, as one more would be refused.
class StepMeans {
 public:
  /// Is the next reduction the last of its step, as far as is known?
  [[nodiscard]] bool is_last() const noexcept { return most_ != 0 && reductions_ + 1 >= most_; }
  /// Is there only this rank's part of them?
  [[nodiscard]] bool are_parts() const noexcept { return are_parts_; }

  void asked_to_gather() noexcept { asked_ = true; }
  void reduced(bool scattered) noexcept {
    ++reductions_;
    are_parts_ = scattered;
    always_asked_ = std::exchange(asked_, false) && always_asked_;
  }
  /// Each rank changed its own part: clipped, unscaled.
  void part_changed() noexcept { are_parts_ = reductions_ > 0; }
  void gathered() noexcept { are_parts_ = false; }
  /// They were applied, or zeroed.
  void step_ended() noexcept {
    are_parts_ = asked_ = false;
    if (reductions_ == 0) return;
    recent_[steps_++ % kRecent] = reductions_;
    largest_ = std::max(largest_, std::exchange(reductions_, 0));
    most_ = always_asked_ ? *std::max_element(recent_.begin(), recent_.end()) : largest_;
  }
  static constexpr std::size_t kRecent = 8;

 private:
  std::uint64_t reductions_ = 0;  ///< of this step
  std::uint64_t most_ = 0;        ///< expected of a step; 0: none has ended
  std::array<std::uint64_t, kRecent> recent_{};  ///< of the last steps
  std::size_t steps_ = 0;                        ///< that have ended
  std::uint64_t largest_ = 0;                    ///< of a step
  bool asked_ = false;        ///< was gather_means() called since the last reduction?
  bool always_asked_ = true;  ///< before each
  bool are_parts_ = false;
};

}  // namespace acc::runtime::training
