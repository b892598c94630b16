#include "runtime/training/schedule.hpp"
#include "runtime/training/settings_text.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <acc/scheduler.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace acc::runtime {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error{ErrorCode::invalid_argument, "a scheduler: " + what};
}

}  // namespace

Scheduler::~Scheduler() = default;

Scheduler::Scheduler(Optimizer& optimizer) : optimizer_{&optimizer} {
  for (const GroupSettings& group : optimizer.groups())
    initial_rates_.push_back(group.learning_rate);
}

void Scheduler::start() { apply(); }

void Scheduler::apply() {
  for (std::size_t group = 0; group < initial_rates_.size(); ++group) {
    const Values now = values(group, steps_);
    optimizer_->set_learning_rate(group, now.learning_rate);
    if (now.momentum) optimizer_->set_momentum(group, *now.momentum);
  }
}

void Scheduler::step() {
  const auto total = total_steps();
  if (total && steps_ >= *total)
    refuse("its " + std::to_string(*total) + " steps are over (total_steps)");
  ++steps_;
  ++count_;
  apply();
}

std::string Scheduler::description() const {
  std::string text = "rates";
  constexpr std::array<std::uint64_t, 6> kSteps{0, 1, 10, 100, 1000, 10'000};
  for (const std::uint64_t step : kSteps) {
    if (total_steps() && step > *total_steps()) break;
    text += " " + training::shortest(values(0, step).learning_rate);
    for (std::size_t group = 1; group < initial_rates_.size(); ++group)
      text += "/" + training::shortest(values(group, step).learning_rate);
  }
  text += " at steps 0, 1, 10, 100, …";
  if (total_steps()) text += " of " + std::to_string(*total_steps());
  return steps_ == 0 ? text : text + ", after " + std::to_string(steps_) + " steps";
}

std::string Scheduler::state_text() const {
  return nlohmann::json{{"steps", steps_}, {"count", count_}, {"initial_rates", initial_rates_}}
      .dump();
}

void Scheduler::load_state_text(std::string_view text) {
  const auto corrupt = [] {
    throw Error{ErrorCode::corrupt, "the state of a scheduler: not what state_text() wrote"};
  };
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) corrupt();
  const auto steps = json.find("steps");
  const auto count = json.find("count");
  const auto rates = json.find("initial_rates");
  if (steps == json.end() || !steps->is_number_unsigned() || count == json.end() ||
      !count->is_number_unsigned() || rates == json.end() || !rates->is_array() ||
      !std::ranges::all_of(*rates, [](const auto& rate) { return rate.is_number(); }))
    corrupt();
  if (rates->size() != initial_rates_.size())
    refuse("its state is of " + std::to_string(rates->size()) + " groups of parameters, here are " +
           std::to_string(initial_rates_.size()));
  steps_ = steps->get<std::uint64_t>();
  count_ = count->get<std::uint64_t>();
  initial_rates_ = rates->get<std::vector<double>>();
}

LambdaScheduler::LambdaScheduler(Optimizer& optimizer, Schedule schedule)
    : LambdaScheduler{optimizer,
                      std::vector<Schedule>(optimizer.groups().size(), schedule)} {}

LambdaScheduler::LambdaScheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : Scheduler{optimizer}, schedules_{std::move(schedules)} {
  if (schedules_.size() != optimizer.groups().size())
    refuse(std::to_string(schedules_.size()) + " schedules for " +
           std::to_string(optimizer.groups().size()) + " groups of parameters");
  if (std::ranges::any_of(schedules_, [](const Schedule& schedule) { return !schedule; }))
    refuse("an empty schedule");
  start();
}

Scheduler::Values LambdaScheduler::values(std::size_t group, std::uint64_t step) const {
  return {initial_rates()[group] * schedules_[group](step)};
}

OneCycleScheduler::OneCycleScheduler(Optimizer& optimizer, OneCycleOptions options)
    : Scheduler{optimizer}, options_{std::move(options)} {
  const auto groups = optimizer.groups();
  if (options_.total_steps == 0) refuse("OneCycleOptions::total_steps isn't given");
  if (!(options_.pct_start >= 0 && options_.pct_start <= 1))
    refuse("a pct_start of " + training::shortest(options_.pct_start) + ": between 0 and 1");
  if (!(options_.div_factor > 0) || !(options_.final_div_factor > 0))
    refuse("div_factor and final_div_factor must be above 0");
  if (options_.max_rates.empty()) options_.max_rates.assign(groups.size(), options_.max_rate);
  if (options_.max_rates.size() != groups.size())
    refuse(std::to_string(options_.max_rates.size()) + " max_rates for " +
           std::to_string(groups.size()) + " groups of parameters");
  if (options_.cycle_momentum &&
      std::ranges::any_of(groups, [](const auto& group) { return group.momentum == 0; }))
    refuse("the optimizer has no momentum to cycle: give it one, or cycle_momentum = false");
  for (std::size_t group = 0; group < groups.size(); ++group)
    set_initial_rate(group, options_.max_rates[group] / options_.div_factor);
  start();
}

Scheduler::Values OneCycleScheduler::values(std::size_t group, std::uint64_t step) const {
  const auto now = training::one_cycle(options_, options_.max_rates[group], step);
  if (!options_.cycle_momentum) return {now.learning_rate};
  return {now.learning_rate, now.momentum};
}

}  // namespace acc::runtime
