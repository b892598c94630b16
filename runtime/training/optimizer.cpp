#include "runtime/training/bucket_memory.hpp"
#include "runtime/training/cast.hpp"
#include "runtime/training/gradients.hpp"
#include "runtime/training/optimizer_kernels.hpp"
#include "runtime/training/optimizer_memory.hpp"
#include "runtime/training/settings_text.hpp"

#include <acc/error.hpp>
#include <acc/optimizer.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace acc::runtime {
namespace {

constexpr std::size_t kBlock = 1024;  ///< gradients of 16 bits that are floats at a time

void* moved_on(void* at, std::size_t bytes) { return static_cast<std::byte*>(at) + bytes; }

using training::shortest;

GroupSettings settings_of(const SgdOptions& options) {
  return {.learning_rate = options.learning_rate,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay};
}
GroupSettings settings_of(const AdamWOptions& options) {
  return {.learning_rate = options.learning_rate,
          .momentum = options.beta1,
          .weight_decay = options.weight_decay};
}

bool any_momentum(std::span<const GroupSettings> groups) {
  return std::ranges::any_of(groups, [](const auto& group) { return group.momentum != 0; });
}

/// Which parameters have weight decay, as far as that isn't all.
std::string decay_text(std::span<const Parameter> parameters,
                       const std::function<bool(const Parameter&)>& decays) {
  if (!decays) return {};
  return ", weight decay for " + std::to_string(std::ranges::count_if(parameters, decays)) +
         " of them";
}

void require_reachable(const training::Gradients& gradients, bool on_device_too) {
  constexpr const char* kWho = "an optimizer";
  gradients.require_memory(kWho);
  for (const Parameter& parameter : gradients.parameters) {
    const DType type = parameter.value.dtype;
    if (on_device_too && (type == DType::f32 || type == DType::f64)) continue;
    training::require_host(parameter.gradient.device, kWho,
                           "'" + parameter.name + "' (" + std::string{to_string(type)} + ")");
  }
}

}  // namespace

Optimizer::Optimizer(GradientReducer& reducer, double learning_rate, Reach reach)
    : Optimizer{reducer, {.learning_rate = learning_rate}, {}, reach} {}
Optimizer::Optimizer(std::vector<Parameter> parameters, double learning_rate, Reach reach)
    : Optimizer{std::move(parameters), {.learning_rate = learning_rate}, {}, reach} {}

Optimizer::Optimizer(GradientReducer& reducer, GroupSettings settings,
                     const std::vector<ParameterGroup>& groups, Reach reach)
    : reducer_{&reducer}, memory_{std::make_unique<Memory>()} {
  require_reachable(training::gradients_of(reducer), reach == Reach::device);
  make_groups(std::move(settings), groups);
}

Optimizer::Optimizer(std::vector<Parameter> parameters, GroupSettings settings,
                     const std::vector<ParameterGroup>& groups, Reach reach)
    : own_{std::move(parameters)},
      own_ranges_{whole_ranges(own_)},
      memory_{std::make_unique<Memory>()} {
  require_reachable({own_, own_ranges_}, reach == Reach::device);
  make_groups(std::move(settings), groups);
}

Optimizer::~Optimizer() = default;

std::span<const Parameter> Optimizer::parameters() const noexcept {
  return reducer_ != nullptr ? reducer_->parameters() : own_;
}
std::span<const GradientRange> Optimizer::ranges() const {
  return reducer_ != nullptr ? reducer_->ranges() : own_ranges_;
}
bool Optimizer::sharded() const noexcept {
  return reducer_ != nullptr && reducer_->mode() == GradientMode::reduce_scatter;
}

/// At the first step, as the layout may change in the first backward, and has to stay from now on.
void Optimizer::make_state() {
  if (memory_->made()) return;
  if (sharded()) reducer_->keep_layout();
  memory_->make(parameters(), ranges(), kinds());
}

void Optimizer::step() {
  if (reducer_ != nullptr) reducer_->require_between_backwards("step");
  make_state();
  ++steps_;
  const auto all = ranges();
  if (!sharded()) {
    for (std::size_t i = 0; i < all.size(); ++i) update(i);
    return;
  }
  // The values of one bucket travel while the next one is updated. A rank may have no part of a
  // bucket's parameters, only of its padding.
  std::size_t next = 0;
  const std::size_t buckets = reducer_->bucket_count();
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    while (next < all.size() && all[next].bucket == bucket) update(next++);
    reducer_->share_values(bucket);
  }
  reducer_->finish_sharing();
}

void Optimizer::update(std::size_t index) {
  const GradientRange& range = ranges()[index];
  const Parameter& parameter = parameters()[range.parameter];
  const DType type = parameter.value.dtype;
  void* values = moved_on(parameter.value.data, range.offset * size_of(type));
  void* gradient = moved_on(parameter.gradient.data, range.offset * size_of(type));
  const auto& pieces = memory_->of_range(index);
  const GroupSettings& settings = groups_[group_of_[range.parameter]];
  if (type == DType::f32 || type == DType::f64)
    return update({parameter, values, gradient, pieces, type, range.count, settings});

  std::array<float, kBlock> gradients;
  auto* master = static_cast<float*>(pieces.back());
  std::vector<void*> state{pieces.begin(), pieces.end() - 1};
  for (std::size_t done = 0; done < range.count; done += kBlock) {
    const std::size_t some = std::min(kBlock, range.count - done);
    training::to_floats(moved_on(gradient, done * size_of(type)), type, gradients.data(), some);
    update({parameter, master + done, gradients.data(), state, DType::f32, some, settings});
    training::from_floats(master + done, moved_on(values, done * size_of(type)), type, some);
    for (void*& at : state) at = moved_on(at, some * sizeof(float));
  }
}

void Optimizer::zero_grad() {
  if (reducer_ != nullptr) return reducer_->zero_gradients();
  for (const Parameter& parameter : own_)
    training::fill_zero(parameter.gradient.data, parameter.gradient.bytes(),
                        parameter.gradient.device, nullptr);
}

// ---- the two of them ----

Sgd::Sgd(GradientReducer& reducer, SgdOptions options)
    : Optimizer{reducer, settings_of(options), options.groups},
      options_{std::move(options)},
      has_momentum_{any_momentum(groups())} {}
Sgd::Sgd(std::vector<Parameter> parameters, SgdOptions options)
    : Optimizer{std::move(parameters), settings_of(options), options.groups},
      options_{std::move(options)},
      has_momentum_{any_momentum(groups())} {}

std::vector<std::string_view> Sgd::kinds() const {
  if (!has_momentum_) return {};
  return {"momentum_buffer"};
}

void Sgd::update(const Piece& piece) const {
  const GroupSettings& settings = piece.settings;
  const bool decays = !options_.decays || options_.decays(piece.parameter);
  const bool moves = !piece.state.empty() && settings.momentum != 0;
  training::sgd(piece.values, piece.gradient, moves ? piece.state[0] : nullptr, piece.type,
                piece.count,
                {.learning_rate = settings.learning_rate,
                 .momentum = settings.momentum,
                 .dampening = options_.dampening,
                 .weight_decay = decays ? settings.weight_decay : 0,
                 .nesterov = options_.nesterov,
                 .first = steps() == 1});
}

std::string Sgd::settings_text() const {
  return "Sgd" + (options_.dampening != 0 ? ", dampening " + shortest(options_.dampening) : "") +
         (options_.nesterov ? ", nesterov" : "") + decay_text(parameters(), options_.decays);
}

AdamW::AdamW(GradientReducer& reducer, AdamWOptions options)
    : Optimizer{reducer, settings_of(options), options.groups}, options_{std::move(options)} {}
AdamW::AdamW(std::vector<Parameter> parameters, AdamWOptions options)
    : Optimizer{std::move(parameters), settings_of(options), options.groups},
      options_{std::move(options)} {}

std::vector<std::string_view> AdamW::kinds() const { return {"exp_avg", "exp_avg_sq"}; }

void AdamW::update(const Piece& piece) const {
  const GroupSettings& settings = piece.settings;
  const bool decays = !options_.decays || options_.decays(piece.parameter);
  const auto step = static_cast<double>(steps());
  training::adamw(piece.values, piece.gradient, piece.state[0], piece.state[1], piece.type,
                  piece.count,
                  {.learning_rate = settings.learning_rate,
                   .beta1 = settings.momentum,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .weight_decay = decays ? settings.weight_decay : 0,
                   .correction1 = 1 - std::pow(settings.momentum, step),
                   .correction2 = 1 - std::pow(options_.beta2, step)});
}

std::string AdamW::settings_text() const {
  return "AdamW, beta2 " + shortest(options_.beta2) + ", epsilon " + shortest(options_.epsilon) +
         decay_text(parameters(), options_.decays);
}

}  // namespace acc::runtime
