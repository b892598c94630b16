#pragma once

#include <acc/optimizer.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

/// What an initial learning rate is multiplied by after so many steps.
using Schedule = std::function<double(std::uint64_t step)>;

/// From 0 to 1 over `warmup_steps`, then 1. As transformers' get_constant_schedule_with_warmup.
[[nodiscard]] Schedule constant_with_warmup(std::uint64_t warmup_steps = 0);
/// Then down to 0 at `total_steps`. As get_linear_schedule_with_warmup.
[[nodiscard]] Schedule linear_with_warmup(std::uint64_t warmup_steps, std::uint64_t total_steps);
/// Then along a cosine; half a cycle ends at 0. As get_cosine_schedule_with_warmup.
[[nodiscard]] Schedule cosine_with_warmup(std::uint64_t warmup_steps, std::uint64_t total_steps,
                                          double cycles = 0.5);

/// Sets the learning rates of an optimizer from step to step: as torch.optim.lr_scheduler. In a
/// loop with an Accelerator: prepare() it, and call accelerator.step(scheduler) after each
/// accelerator.step(optimizer).
class Scheduler {
 public:
  virtual ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// One step on: the optimizer's next step has the new rates.
  /// @throws Error invalid_argument: beyond total_steps(); a rate that is no finite number
  void step();
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Steps, and batches that were only accumulated: torch's _step_count, by which Accelerate ends a
  /// schedule that has a length.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  void count_accumulated_batch() noexcept { ++count_; }
  /// Nothing: it has no end.
  [[nodiscard]] virtual std::optional<std::uint64_t> total_steps() const { return std::nullopt; }

  [[nodiscard]] Optimizer& optimizer() const noexcept { return *optimizer_; }
  /// What must be the same on every rank, in words, with the rates at some steps.
  [[nodiscard]] std::string description() const;

  [[nodiscard]] std::string state_text() const;  ///< JSON
  /// The rates are the optimizer's state, and stay as they are until the next step.
  /// @throws Error corrupt; invalid_argument: of another number of groups
  void load_state_text(std::string_view text);

 protected:
  /// @param optimizer  outlives this, and isn't moved
  explicit Scheduler(Optimizer& optimizer);
  /// The last thing that a constructor does: sets the rates of the first step.
  void start();
  struct Values {
    double learning_rate = 0;
    std::optional<double> momentum = {};  ///< nothing: it stays
  };
  /// Of a group of the optimizer, after so many steps.
  [[nodiscard]] virtual Values values(std::size_t group, std::uint64_t step) const = 0;
  /// Of the groups, before the schedule began: a part of the state.
  [[nodiscard]] std::span<const double> initial_rates() const noexcept { return initial_rates_; }
  void set_initial_rate(std::size_t group, double rate) { initial_rates_.at(group) = rate; }

 private:
  void apply();

  Optimizer* optimizer_;
  std::vector<double> initial_rates_;
  std::uint64_t steps_ = 0;
  std::uint64_t count_ = 1;
};

/// Initial rate × schedule(steps). As torch's LambdaLR.
///   acc::LambdaScheduler scheduler{optimizer, acc::linear_with_warmup(100, 10'000)};
class LambdaScheduler final : public Scheduler {
 public:
  LambdaScheduler(Optimizer& optimizer, Schedule schedule);
  /// One for each group of the optimizer.
  LambdaScheduler(Optimizer& optimizer, std::vector<Schedule> schedules);

 private:
  [[nodiscard]] Values values(std::size_t group, std::uint64_t step) const override;
  std::vector<Schedule> schedules_;
};

struct OneCycleOptions {
  double max_rate = 1e-2;              ///< of all groups
  std::vector<double> max_rates = {};  ///< or of each
  std::uint64_t total_steps = 0;       ///< to be given
  double pct_start = 0.3;              ///< the part of the steps in which the rate rises
  enum class Anneal : std::uint8_t { cosine, linear };
  Anneal anneal = Anneal::cosine;
  /// Momentum (AdamW: beta1) goes the other way; the optimizer must have one.
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;         ///< the first rate is max_rate over this
  double final_div_factor = 1e4;  ///< the last is the first over this
  bool three_phase = false;
};

/// Up to the maximum and down to nearly nothing. As torch's OneCycleLR. The optimizer's own rate
/// doesn't count.
class OneCycleScheduler final : public Scheduler {
 public:
  OneCycleScheduler(Optimizer& optimizer, OneCycleOptions options);
  [[nodiscard]] std::optional<std::uint64_t> total_steps() const override {
    return options_.total_steps;
  }

 private:
  [[nodiscard]] Values values(std::size_t group, std::uint64_t step) const override;
  OneCycleOptions options_;
};

/// How an Accelerator steps a scheduler.
struct SchedulerOptions {
  /// false: with each accelerator.step(scheduler) once, whatever the optimizer did.
  bool step_with_optimizer = true;
  /// A batch is split over the ranks, so that there are as many steps as on one; else each step of
  /// the loop counts as many as there are ranks. Nothing: as the prepared loaders.
  std::optional<bool> split_batches = {};
};

}  // namespace acc::runtime

namespace acc {
using runtime::constant_with_warmup;
using runtime::cosine_with_warmup;
using runtime::LambdaScheduler;
using runtime::linear_with_warmup;
using runtime::OneCycleOptions;
using runtime::OneCycleScheduler;
using runtime::Schedule;
using runtime::Scheduler;
using runtime::SchedulerOptions;
}  // namespace acc
