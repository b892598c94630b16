#pragma once

#include <acc/optimizer.hpp>
#include <acc/process_group.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace acc::runtime {

struct LossScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::uint32_t growth_interval = 2000;  ///< good steps in a row before the scale grows
  /// Lower bound of the scale: update() throws instead, as the training has most likely diverged.
  /// As fairseq's min_loss_scale.
  double min_scale = 1e-4;
  bool enabled = true;  ///< false: scale 1, nothing checked
};

/// Keeps small f16 gradients from vanishing: the loss is multiplied by a scale, gradients are
/// divided by it before the step, a step with an infinity or NaN in any gradient is skipped on all
/// ranks and the scale halved, and after many good steps the scale is doubled. As
/// torch.cuda.amp.GradScaler.
///  backward of scaler.scale(loss) …; scaler.unscale(optimizer); clip …; if
/// (!scaler.step(optimizer)) … the step was skipped …;
///   scaler.update();
class LossScaler {
 public:
  /// @param group  of an optimizer without a reducer: whose ranks agree; none: this rank alone.
  explicit LossScaler(LossScalerOptions options = {}, ProcessGroup group = {});

  [[nodiscard]] double scale() const noexcept { return options_.enabled ? scale_ : 1; }
  [[nodiscard]] double scale(double loss) const noexcept { return loss * scale(); }

  /// Divides the gradients by the scale; needed only to look at them or clip them before step().
  /// Collective. @return true: all gradients of all ranks are finite
  /// @throws Error invalid_argument: after a step() since the last update(), or twice for the same
  ///   gradients: a reducer's new ones, and those after discard(), are scaled again; a gradient is
  ///   f16, in which small ones would become 0 now. As torch, which refuses step(), too.
  bool unscale(Optimizer& optimizer);
  /// Gradients of f16 stay as they are, and are divided as floats, for the master copy.
  /// Collective. @return false: a gradient was infinite or NaN on some rank, nothing was changed.
  /// @throws Error invalid_argument: twice since the last update().
  bool step(Optimizer& optimizer);
  /// After the steps of all optimizers.
  /// @throws Error invalid_argument, on all ranks: gradients are infinite or NaN at min_scale too;
  /// it names the first such parameter, and without a reducer its rank (a reduced gradient is
  /// infinite or NaN on all). The scale stays, nothing was stepped.
  void update();

  /// Were this one's gradients, as they are now, divided since the last update()?
  [[nodiscard]] bool unscaled(const Optimizer& optimizer) const;
  /// Its gradients were dropped without a step: the next ones are scaled again. An optimizer with a
  /// reducer doesn't need it. A step() before it still counts for update().
  void discard(const Optimizer& optimizer) noexcept;
  void discard_all() noexcept;  ///< of all optimizers
  /// Also what was stepped: for optimizers that no longer exist, whose addresses others may get.
  void forget_optimizers() noexcept;

  /// Was the last step() skipped?
  [[nodiscard]] bool step_was_skipped() const noexcept { return skipped_last_; }
  /// Was the last step() of this one?
  [[nodiscard]] bool step_was_skipped(const Optimizer& optimizer) const {
    return skipped_now_.contains(&optimizer);
  }
  /// Of the last skipped step: the first parameter with an infinite or NaN gradient, as far as this
  /// rank has it; empty: only others have.
  [[nodiscard]] const std::string& bad_parameter() const noexcept { return bad_; }
  [[nodiscard]] std::uint64_t skipped_steps() const noexcept { return skipped_; }
  [[nodiscard]] std::uint32_t growth_tracker() const noexcept { return good_steps_; }
  /// Called on every rank for each skipped step, with the scale that was too large.
  void on_skip(std::function<void(double scale)> callback) { callback_ = std::move(callback); }

  [[nodiscard]] std::string state_text() const;  ///< JSON
  /// @throws Error corrupt
  void load_state_text(std::string_view text);

 private:
  struct Stage {
    std::uint64_t means = 0;  ///< GradientReducer::means() of the gradients that it is about
    bool unscaled = false;
    bool finite = true;
    bool stepped = false;
  };
  [[nodiscard]] ProcessGroup group_of(const Optimizer& optimizer) const;
  [[nodiscard]] bool agree(Optimizer& optimizer, bool finite);
  [[nodiscard]] Stage& stage_of(const Optimizer& optimizer);
  void divide(Optimizer& optimizer, Stage& stage);
  [[noreturn]] void give_up();

  LossScalerOptions options_;
  ProcessGroup group_;
  double scale_;
  std::uint32_t good_steps_ = 0;
  std::uint64_t skipped_ = 0;
  bool skipped_last_ = false;
  std::map<const Optimizer*, Stage> stages_;  ///< since the last update(); addresses alone
  std::set<const Optimizer*> skipped_now_;    ///< whose last step was skipped; likewise
  std::string bad_;
  ProcessGroup bad_group_;       ///< of bad_
  bool bad_is_reduced_ = false;  ///< bad_ may be another rank's doing
  std::function<void(double)> callback_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::LossScaler;
using runtime::LossScalerOptions;
}  // namespace acc
