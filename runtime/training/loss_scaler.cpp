#include "runtime/training/gradient_passes.hpp"
#include "runtime/training/settings_text.hpp"
#include "runtime/user_call.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <acc/loss_scaler.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

namespace acc::runtime {
namespace {

/// Of its gradient it is the type, too.
bool is_half(const Parameter& parameter) { return parameter.value.dtype == DType::f16; }

/// Differs between the gradients of two backwards; 0: zeros, sums, or those of no reducer.
std::uint64_t means_of(const Optimizer& optimizer) {
  return optimizer.reducer() != nullptr ? optimizer.reducer()->means() : 0;
}

}  // namespace

LossScaler::LossScaler(LossScalerOptions options, ProcessGroup group)
    : options_{options}, group_{std::move(group)}, scale_{options.initial_scale} {
  const auto refuse = [](const char* what) {
    throw Error{ErrorCode::invalid_argument, std::string{"LossScaler: "} + what};
  };
  if (!(options.initial_scale > 0) || !std::isfinite(options.initial_scale))
    refuse("initial_scale must be above 0");
  if (!(options.growth_factor > 1)) refuse("growth_factor must be above 1");
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1))
    refuse("backoff_factor must lie between 0 and 1");
  if (!(options.min_scale > 0 && options.min_scale <= options.initial_scale))
    refuse("min_scale must lie between 0 and initial_scale");
  if (options.growth_interval == 0) refuse("growth_interval must be 1 or more");
}

ProcessGroup LossScaler::group_of(const Optimizer& optimizer) const {
  return optimizer.reducer() != nullptr ? optimizer.reducer()->group() : group_;
}

/// A sum of gradients is not finite where one of them isn't, but scattered gradients are seen by
/// one rank each, and a rank that steps alone would part from the others for good.
bool LossScaler::agree(Optimizer& optimizer, bool finite) {
  ProcessGroup group = group_of(optimizer);
  if (!group || group.size() == 1) return finite;
  std::int32_t bad = finite ? 0 : 1;
  group.all_reduce(std::span<std::int32_t>{&bad, 1}, ReduceOp::max);
  return bad == 0;
}

/// A loop may leave a step out: what was found about those gradients says nothing about the next.
LossScaler::Stage& LossScaler::stage_of(const Optimizer& optimizer) {
  Stage& stage = stages_[&optimizer];
  const std::uint64_t means = means_of(optimizer);
  if (!stage.stepped && stage.means != means) stage = {.means = means};
  return stage;
}

bool LossScaler::unscale(Optimizer& optimizer) {
  const InUserCall within{UserCall::unscale_gradients};
  if (!options_.enabled) return true;
  const auto all = optimizer.parameters();
  const auto half = std::ranges::find_if(all, is_half);
  if (half != all.end())
    throw Error{ErrorCode::invalid_argument,
                "LossScaler: unscale, also for clipping: the gradient of '" + half->name +
                    "' is f16, in which small ones would become 0 when they are divided by the "
                    "scale. Keep the parameters in f32 or bf16, or call step() alone, which "
                    "divides f16 gradients as floats"};
  Stage& stage = stage_of(optimizer);
  if (stage.unscaled || stage.stepped)
    throw Error{ErrorCode::invalid_argument,
                "LossScaler: unscale was called on this optimizer since the last update()"};
  training::require_between_backwards(optimizer, "LossScaler::unscale");
  divide(optimizer, stage);
  stage.unscaled = true;
  return stage.finite;
}

/// Of f16 gradients it only looks whether they are finite.
void LossScaler::divide(Optimizer& optimizer, Stage& stage) {
  const training::Gradients gradients = training::gradients_of(optimizer);
  training::require_reachable(gradients, "LossScaler");
  auto halves = gradients, others = gradients;
  const auto is_of_half = [&](const GradientRange& range) {
    return is_half(gradients.parameters[range.parameter]);
  };
  std::erase_if(halves.ranges, std::not_fn(is_of_half));
  std::erase_if(others.ranges, is_of_half);
  bool finite = training::scale(others, 1 / scale_);
  if (!halves.ranges.empty()) finite &= training::scale(halves, 1);
  stage.finite = agree(optimizer, finite);
  if (!stage.finite) {
    bad_ = finite ? std::string{} : training::first_not_finite(gradients);
    bad_group_ = group_of(optimizer);
    bad_is_reduced_ = optimizer.reducer() != nullptr;
  }
}

bool LossScaler::step(Optimizer& optimizer) {
  const InUserCall within{UserCall::step};
  skipped_last_ = false;
  skipped_now_.erase(&optimizer);
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  training::require_between_backwards(optimizer, "LossScaler::step");
  Stage& stage = stage_of(optimizer);
  if (stage.stepped)
    throw Error{ErrorCode::invalid_argument,
                "LossScaler: step was called on this optimizer since the last update()"};
  if (!stage.unscaled) divide(optimizer, stage);
  stage.unscaled = stage.stepped = true;
  if (stage.finite) {
    optimizer.step_scaled(scale_);
    return true;
  }
  optimizer.skip_step();
  ++skipped_;
  skipped_last_ = true;
  skipped_now_.insert(&optimizer);
  if (callback_) callback_(scale_);
  return false;
}

void LossScaler::update() {
  if (!options_.enabled) return;
  if (stages_.empty())
    throw Error{ErrorCode::invalid_argument,
                "LossScaler: update without a step or an unscale since the last one"};
  bool finite = true;
  for (const auto& [optimizer, stage] : stages_) finite &= stage.finite;
  stages_.clear();
  if (!finite) {
    good_steps_ = 0;
    if (scale_ * options_.backoff_factor < options_.min_scale) give_up();
    scale_ *= options_.backoff_factor;
  } else if (++good_steps_ >= options_.growth_interval) {  // above: resumed with a shorter one
    const double larger = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(larger))) scale_ = larger;
    good_steps_ = 0;
  }
}

/// On all ranks, as all know that the gradients aren't finite. Gradients of a reducer were reduced,
/// so any rank's NaN is everywhere by now: only without a reducer a rank can be named.
void LossScaler::give_up() {
  std::string name = bad_;
  std::string where;
  std::vector<int> ranks;
  if (bad_group_ && bad_group_.size() > 1) {
    const auto names = bad_group_.all_gather_object(bad_);
    const auto first = std::ranges::find_if(names, [](const auto& one) { return !one.empty(); });
    if (first != names.end()) name = *first;
    if (bad_is_reduced_) {
      where = " after the reduction over all ranks, any of which may have caused it";
    } else if (first != names.end()) {
      ranks.push_back(static_cast<int>(first - names.begin()));
      where = " on rank " + std::to_string(ranks.front());
    }
  }
  throw Error{ErrorCode::invalid_argument,
              "LossScaler: gradients are infinite or NaN at a loss scale of " +
                  training::shortest(scale_) + ", and it doesn't fall below min_scale, " +
                  training::shortest(options_.min_scale) + "; the first is that of '" + name + "'" +
                  where + ". It is the loss or the model that isn't finite",
              ranks, "loss_scaler"};
}

bool LossScaler::unscaled(const Optimizer& optimizer) const {
  const auto stage = stages_.find(&optimizer);
  return stage != stages_.end() && stage->second.unscaled &&
         stage->second.means == means_of(optimizer);
}

void LossScaler::discard(const Optimizer& optimizer) noexcept {
  const auto stage = stages_.find(&optimizer);
  if (stage != stages_.end() && !stage->second.stepped) stages_.erase(stage);
}

void LossScaler::discard_all() noexcept {
  std::erase_if(stages_, [](const auto& entry) { return !entry.second.stepped; });
}

void LossScaler::forget_optimizers() noexcept {
  stages_.clear();
  skipped_now_.clear();
}

std::string LossScaler::state_text() const {
  return nlohmann::json{
      {"scale", scale_}, {"growth_tracker", good_steps_}, {"skipped_steps", skipped_}}
      .dump();
}

void LossScaler::load_state_text(std::string_view text) {
  const auto refuse = [] {
    throw Error{ErrorCode::corrupt, "the state of a loss scaler: not what state_text() wrote"};
  };
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) refuse();
  const auto scale = json.find("scale");
  const auto tracker = json.find("growth_tracker");
  const auto skipped = json.find("skipped_steps");
  if (scale == json.end() || !scale->is_number() || tracker == json.end() ||
      !tracker->is_number_unsigned() || skipped == json.end() || !skipped->is_number_unsigned())
    refuse();
  if (!(scale->get<double>() > 0)) refuse();
  scale_ = scale->get<double>();
  good_steps_ = tracker->get<std::uint32_t>();
  skipped_ = skipped->get<std::uint64_t>();
  stages_.clear();
}

}  // namespace acc::runtime
