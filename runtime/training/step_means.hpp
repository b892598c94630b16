#pragma once

#include <algorithm>
#include <cstdint>

namespace acc::runtime::training {

/// What is known of the means that gradients hold where reductions scatter them, since the step
/// began (GradientReducer::zero_gradients), and how many reductions a step has. A backward that
/// adds to a part of the means and to sums of this rank elsewhere would be averaged with them, so
/// only the last reduction of a step is scattered: that of the number that an earlier step had. The
/// first step tells it. Every rank makes the same calls, so it needs no communication.
class StepMeans {
 public:
  /// Is the next reduction the last of its step, as far as is known?
  [[nodiscard]] bool is_last() const noexcept { return most_ != 0 && reductions_ + 1 >= most_; }
  /// Is there only this rank's part of them?
  [[nodiscard]] bool are_parts() const noexcept { return are_parts_; }

  void reduced(bool scattered) noexcept {
    ++reductions_;
    are_parts_ = scattered;
  }
  /// Each rank changed its own part: clipped, unscaled.
  void part_changed() noexcept { are_parts_ = reductions_ > 0; }
  void gathered() noexcept { are_parts_ = false; }
  /// They were applied, or zeroed.
  void step_ended() noexcept {
    most_ = std::max(most_, reductions_);
    reductions_ = 0;
    are_parts_ = false;
  }

 private:
  std::uint64_t reductions_ = 0;  ///< of this step
  std::uint64_t most_ = 0;        ///< of a step; 0: none has ended
  bool are_parts_ = false;
};

}  // namespace acc::runtime::training
