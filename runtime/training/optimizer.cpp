#include "runtime/device/kernels.hpp"
#include "runtime/training/bucket_memory.hpp"
#include "runtime/training/cast.hpp"
#include "runtime/training/device_gradients.hpp"
#include "runtime/training/element_kernels.hpp"
#include "runtime/training/gradients.hpp"
#include "runtime/training/optimizer_kernels.hpp"
#include "runtime/training/optimizer_memory.hpp"
#include "runtime/training/settings_text.hpp"
#include "runtime/user_call.hpp"

#include <acc/error.hpp>
#include <acc/optimizer.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace acc::runtime {
namespace {

constexpr std::size_t kDeviceBlock = std::size_t{1} << 20;  ///< likewise, in device memory
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

void require_setting(bool holds, const char* what, double value, const char* rule) {
  if (holds) return;
  throw Error{ErrorCode::invalid_argument,
              std::string{what} + " is " + shortest(value) + "; it must be " + rule};
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
  training::require_apart(gradients.parameters, kWho);
  for (const Parameter& parameter : gradients.parameters) {
    if (parameter.value.data == nullptr && parameter.value.count() > 0)
      throw Error{ErrorCode::invalid_argument,
                  std::string{kWho} + ": the value of '" + parameter.name + "' has no memory"};
    const DType type = parameter.value.dtype;
    if (!on_device_too)
      training::require_host(parameter.gradient.device, kWho,
                             "'" + parameter.name + "' (" + std::string{to_string(type)} + ")");
    if (type != DType::f32 && type != DType::f64 && training::in_device_memory(parameter.value))
      device::require_kernels("the master copy of '" + parameter.name + "'");
  }
}

/// @throws Error cuda: parameters in device memory, and no kernels to update them with
void require_own_kernels(std::span<const Parameter> parameters, std::string_view who) {
  for (const Parameter& parameter : parameters)
    if (training::in_device_memory(parameter.value)) return device::require_kernels(who);
}

/// Finite floats: there is nothing to find.
void scale_on_device(float* values, std::size_t count, double factor, const Device& device,
                     void* stream) {
  device::scale({values, DType::f32, {static_cast<std::int64_t>(count)}, device}, factor, nullptr,
                stream);
}

/// What a step is made of, once for a float and once for a double.
template <class T>
device::body::Sgd<T> on_device(const void* values, const void* gradient, void* momentum,
                               std::size_t count, const training::SgdStep& step) {
  return {static_cast<T*>(const_cast<void*>(values)),
          static_cast<const T*>(gradient),
          static_cast<T*>(momentum),
          count,
          static_cast<T>(step.learning_rate),
          static_cast<T>(step.weight_decay),
          static_cast<T>(step.momentum),
          static_cast<T>(step.first ? 0 : step.momentum),
          static_cast<T>(step.first ? 1 : 1 - step.dampening),
          step.nesterov};
}

template <class T>
device::body::AdamW<T> on_device(void* values, const void* gradient, std::span<void* const> state,
                                 std::size_t count, const training::AdamWStep& step) {
  return {static_cast<T*>(values),
          static_cast<const T*>(gradient),
          static_cast<T*>(state[0]),
          static_cast<T*>(state[1]),
          count,
          static_cast<T>(1 - step.learning_rate * step.weight_decay),
          static_cast<T>(step.beta1),
          static_cast<T>(step.beta2),
          static_cast<T>(1 - step.beta1),
          static_cast<T>(1 - step.beta2),
          static_cast<T>(step.epsilon),
          static_cast<T>(step.learning_rate / step.correction1),
          static_cast<T>(std::sqrt(step.correction2))};
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
  memory_->make(parameters(), ranges(), kinds(), stream());
}

void Optimizer::step() {
  const InUserCall within{UserCall::step};
  if (reducer_ != nullptr) reducer_->require_between_backwards("step");
  make_state();
  skip_step();  // these gradients are dealt with
  count_step();
  const auto all = ranges();
  if (!sharded()) {
    for (std::size_t i = 0; i < all.size(); ++i) update(i);
    return;
  }
  // The values of one bucket are sent while the next one is updated. A rank may have no part of a
  // bucket's parameters, only of its padding.
  std::size_t next = 0;
  const std::size_t buckets = reducer_->bucket_count();
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    while (next < all.size() && all[next].bucket == bucket) update(next++);
    reducer_->share_values(bucket);
  }
  reducer_->finish_sharing();
}

void Optimizer::step_scaled(double scale) {
  struct Reset {
    double& scale;
    ~Reset() { scale = 1; }
  };
  const Reset reset{memory_->scale};
  memory_->scale = scale;
  step();
}

void Optimizer::count_step() {
  ++steps_;
  if (reducer_ == nullptr) return;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    if (reducer_->has_gradient(i)) continue;
    skipped_.resize(parameters().size());
    ++skipped_[i];
  }
}

void Optimizer::update(std::size_t index) {
  const GradientRange& range = ranges()[index];
  if (reducer_ != nullptr && !reducer_->has_gradient(range.parameter)) return;
  const std::uint64_t step = steps_ - (skipped_.empty() ? 0 : skipped_[range.parameter]);
  const Parameter& parameter = parameters()[range.parameter];
  const DType type = parameter.value.dtype;
  void* values = moved_on(parameter.value.data, range.offset * size_of(type));
  void* gradient = moved_on(parameter.gradient.data, range.offset * size_of(type));
  const auto& pieces = memory_->of_range(index);
  const GroupSettings& settings = groups_[group_of_[range.parameter]];
  if (type == DType::f32 || type == DType::f64)
    return update({parameter, values, gradient, pieces, type, range.count, settings, step});

  update_16_bits({parameter, values, gradient, pieces, type, range.count, settings, step});
}

/// In float, from the master copy, some elements at a time.
void Optimizer::update_16_bits(const Piece& whole) const {
  const bool on_device = training::in_device_memory(whole.parameter.value);
  const std::size_t block = on_device ? std::min(kDeviceBlock, whole.count) : kBlock;
  std::array<float, kBlock> on_host;
  float* const gradients = on_device ? memory_->floats(block) : on_host.data();
  auto* const master = static_cast<float*>(whole.state.back());
  std::vector<void*> state{whole.state.begin(), whole.state.end() - 1};
  const auto each = size_of(whole.type);
  const auto* gradient = static_cast<const std::byte*>(whole.gradient);
  const double factor = whole.type == DType::f16 ? 1 / memory_->scale : 1;
  for (std::size_t done = 0; done < whole.count; done += block) {
    const std::size_t some = std::min(block, whole.count - done);
    void* const values = moved_on(whole.values, done * each);
    const Piece piece{whole.parameter, master + done, gradients,      state,
                      DType::f32,      some,          whole.settings, whole.step};
    if (on_device) {
      const Device& device = whole.parameter.value.device;
      device::widen(gradient + done * each, whole.type, gradients, some, device, stream());
      if (factor != 1) scale_on_device(gradients, some, factor, device, stream());
      update(piece);
      device::narrow(master + done, values, whole.type, some, device, stream());
    } else {
      training::to_floats(gradient + done * each, whole.type, gradients, some);
      if (factor != 1) training::scale(gradients, DType::f32, some, factor);
      update(piece);
      training::from_floats(master + done, values, whole.type, some);
    }
    for (void*& at : state) at = moved_on(at, some * sizeof(float));
  }
}

void* Optimizer::stream() const noexcept {
  return reducer_ != nullptr ? reducer_->stream() : nullptr;
}

void Optimizer::skip_step() noexcept {
  if (reducer_ == nullptr) return;
  applied_ = reducer_->means();
  reducer_->means_taken();
}

bool Optimizer::has_unapplied_gradients() const noexcept {
  return reducer_ != nullptr && reducer_->means() != 0 && reducer_->means() != applied_;
}

void Optimizer::zero_grad() {
  if (reducer_ != nullptr) return reducer_->zero_gradients();
  for (const Parameter& parameter : own_)
    training::fill_zero(parameter.gradient.data, parameter.gradient.bytes(),
                        parameter.gradient.device, nullptr);
}

// ---- the two of them ----

Sgd::Sgd(GradientReducer& reducer, SgdOptions options)
    : Optimizer{reducer, settings_of(options), options.groups, Reach::device},
      options_{std::move(options)},
      has_momentum_{any_momentum(groups())} {
  check_settings();
  require_own_kernels(this->parameters(), "Sgd");
}
Sgd::Sgd(std::vector<Parameter> parameters, SgdOptions options)
    : Optimizer{std::move(parameters), settings_of(options), options.groups, Reach::device},
      options_{std::move(options)},
      has_momentum_{any_momentum(groups())} {
  check_settings();
  require_own_kernels(this->parameters(), "Sgd");
}

void Sgd::check_settings() const {
  require_setting(std::isfinite(options_.dampening), "Sgd: dampening", options_.dampening,
                  "finite");
  if (options_.nesterov && (options_.momentum == 0 || options_.dampening != 0))
    throw Error{ErrorCode::invalid_argument,
                "Sgd: nesterov needs a momentum, and no dampening; they are " +
                    shortest(options_.momentum) + " and " + shortest(options_.dampening)};
}

void Sgd::check_momentum(double momentum) const {
  Optimizer::check_momentum(momentum);
  if (has_momentum_ || momentum == 0) return;
  throw Error{ErrorCode::invalid_argument,
              "Sgd: a momentum of " + shortest(momentum) +
                  " for an optimizer made without one, which has no state for it: give a group a "
                  "momentum in SgdOptions"};
}

std::vector<std::string_view> Sgd::kinds() const {
  if (!has_momentum_) return {};
  return {"momentum_buffer"};
}

void Sgd::update(const Piece& piece) const {
  const GroupSettings& settings = piece.settings;
  const bool decays = !options_.decays || options_.decays(piece.parameter);
  const bool moves = !piece.state.empty() && settings.momentum != 0;
  void* const momentum = moves ? piece.state[0] : nullptr;
  const training::SgdStep step{.learning_rate = settings.learning_rate,
                               .momentum = settings.momentum,
                               .dampening = options_.dampening,
                               .weight_decay = decays ? settings.weight_decay : 0,
                               .nesterov = options_.nesterov,
                               .first = piece.step == 1};
  const Device& device = piece.parameter.value.device;
  if (device.kind == Device::Kind::cpu)
    return training::sgd(piece.values, piece.gradient, momentum, piece.type, piece.count, step);
  if (piece.type == DType::f64)
    device::sgd(on_device<double>(piece.values, piece.gradient, momentum, piece.count, step),
                device, stream());
  else
    device::sgd(on_device<float>(piece.values, piece.gradient, momentum, piece.count, step), device,
                stream());
}

std::string Sgd::settings_text() const {
  return "Sgd" + (options_.dampening != 0 ? ", dampening " + shortest(options_.dampening) : "") +
         (options_.nesterov ? ", nesterov" : "") + decay_text(parameters(), options_.decays);
}

Optimizer::MoreSettings Sgd::more_settings() const {
  return {{"dampening", options_.dampening}, {"nesterov", options_.nesterov ? 1.0 : 0.0}};
}

void Sgd::set_more(const MoreSettings& settings) {
  options_.dampening = settings.at("dampening");
  options_.nesterov = settings.at("nesterov") != 0;
}

AdamW::AdamW(GradientReducer& reducer, AdamWOptions options)
    : Optimizer{reducer, settings_of(options), options.groups, Reach::device},
      options_{std::move(options)} {
  check_settings();
  require_own_kernels(this->parameters(), "AdamW");
}
AdamW::AdamW(std::vector<Parameter> parameters, AdamWOptions options)
    : Optimizer{std::move(parameters), settings_of(options), options.groups, Reach::device},
      options_{std::move(options)} {
  check_settings();
  require_own_kernels(this->parameters(), "AdamW");
}

void AdamW::check_momentum(double momentum) const {
  require_setting(momentum >= 0 && momentum < 1, "AdamW: beta1", momentum,
                  "at least 0 and below 1");
}

void AdamW::check_settings() const {
  for (const GroupSettings& group : groups()) check_momentum(group.momentum);
  require_setting(options_.beta2 >= 0 && options_.beta2 < 1, "AdamW: beta2", options_.beta2,
                  "at least 0 and below 1");
  require_setting(options_.epsilon >= 0 && std::isfinite(options_.epsilon), "AdamW: epsilon",
                  options_.epsilon, "0 or above, and finite");
}

Optimizer::MoreSettings AdamW::more_settings() const {
  return {{"beta2", options_.beta2}, {"epsilon", options_.epsilon}};
}

void AdamW::set_more(const MoreSettings& settings) {
  options_.beta2 = settings.at("beta2");
  options_.epsilon = settings.at("epsilon");
}

std::vector<std::string_view> AdamW::kinds() const { return {"exp_avg", "exp_avg_sq"}; }

void AdamW::update(const Piece& piece) const {
  const GroupSettings& settings = piece.settings;
  const bool decays = !options_.decays || options_.decays(piece.parameter);
  const auto count = static_cast<double>(piece.step);
  const training::AdamWStep step{.learning_rate = settings.learning_rate,
                                 .beta1 = settings.momentum,
                                 .beta2 = options_.beta2,
                                 .epsilon = options_.epsilon,
                                 .weight_decay = decays ? settings.weight_decay : 0,
                                 .correction1 = 1 - std::pow(settings.momentum, count),
                                 .correction2 = 1 - std::pow(options_.beta2, count)};
  const Device& device = piece.parameter.value.device;
  if (device.kind == Device::Kind::cpu)
    return training::adamw(piece.values, piece.gradient, piece.state[0], piece.state[1], piece.type,
                           piece.count, step);
  if (piece.type == DType::f64)
    device::adamw(on_device<double>(piece.values, piece.gradient, piece.state, piece.count, step),
                  device, stream());
  else
    device::adamw(on_device<float>(piece.values, piece.gradient, piece.state, piece.count, step),
                  device, stream());
}

std::string AdamW::settings_text() const {
  return "AdamW, beta2 " + shortest(options_.beta2) + ", epsilon " + shortest(options_.epsilon) +
         decay_text(parameters(), options_.decays);
}

}  // namespace acc::runtime
