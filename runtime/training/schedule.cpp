#include "runtime/training/schedule.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>

/// The formulas of transformers and torch, in their order of operations.
namespace acc::runtime {
namespace {

double at_least_one(double steps) { return steps < 1 ? 1 : steps; }

double warmup(double step, double warmup_steps) { return step / at_least_one(warmup_steps); }

/// A part of a one-cycle schedule.
struct Phase {
  double end_step;
  double start_rate, end_rate;
  double start_momentum, end_momentum;
};

double anneal(OneCycleOptions::Anneal how, double start, double end, double part) {
  if (how == OneCycleOptions::Anneal::linear) return (end - start) * part + start;
  return end + (start - end) / 2 * (std::cos(std::numbers::pi * part) + 1);
}

training::OneCyclePoint point_in(std::span<const Phase> phases, OneCycleOptions::Anneal how,
                                 double step) {
  double start_step = 0;
  std::size_t at = 0;
  while (at + 1 < phases.size() && step > phases[at].end_step) start_step = phases[at++].end_step;
  const Phase& phase = phases[at];
  const double length = phase.end_step - start_step;
  const double part = length > 0 ? (step - start_step) / length : 1;
  return {anneal(how, phase.start_rate, phase.end_rate, part),
          anneal(how, phase.start_momentum, phase.end_momentum, part)};
}

}  // namespace

Schedule constant_with_warmup(std::uint64_t warmup_steps) {
  return [warmup_steps](std::uint64_t step) {
    return step < warmup_steps
               ? warmup(static_cast<double>(step), static_cast<double>(warmup_steps))
               : 1;
  };
}

Schedule linear_with_warmup(std::uint64_t warmup_steps, std::uint64_t total_steps) {
  return [first = static_cast<double>(warmup_steps),
          last = static_cast<double>(total_steps)](std::uint64_t number) {
    const auto step = static_cast<double>(number);
    if (step < first) return warmup(step, first);
    return std::fmax(0, (last - step) / at_least_one(last - first));
  };
}

Schedule cosine_with_warmup(std::uint64_t warmup_steps, std::uint64_t total_steps, double cycles) {
  return [first = static_cast<double>(warmup_steps), last = static_cast<double>(total_steps),
          cycles](std::uint64_t number) {
    const auto step = static_cast<double>(number);
    if (step < first) return warmup(step, first);
    const double progress = (step - first) / at_least_one(last - first);
    return std::fmax(0, 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * progress)));
  };
}

namespace training {

OneCyclePoint one_cycle(const OneCycleOptions& options, double max_rate, std::uint64_t step) {
  const auto total = static_cast<double>(options.total_steps);
  const double first_rate = max_rate / options.div_factor;
  const double last_rate = first_rate / options.final_div_factor;
  const double low = options.base_momentum;
  const double high = options.max_momentum;
  const double rise = options.pct_start * total - 1;
  const auto number = static_cast<double>(step);
  if (options.three_phase) {
    const double fall = 2 * options.pct_start * total - 2;
    const std::array<Phase, 3> phases{{{rise, first_rate, max_rate, high, low},
                                       {fall, max_rate, first_rate, low, high},
                                       {total - 1, first_rate, last_rate, high, high}}};
    return point_in(phases, options.anneal, number);
  }
  const std::array<Phase, 2> phases{
      {{rise, first_rate, max_rate, high, low}, {total - 1, max_rate, last_rate, low, high}}};
  return point_in(phases, options.anneal, number);
}

}  // namespace training
}  // namespace acc::runtime
