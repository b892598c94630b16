#include "runtime/training/bucket_memory.hpp"
#include "runtime/training/cast.hpp"
#include "runtime/training/gradients.hpp"
#include "runtime/training/optimizer_kernels.hpp"
#include "runtime/training/optimizer_memory.hpp"

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
    : reducer_{&reducer}, learning_rate_{learning_rate}, memory_{std::make_unique<Memory>()} {
  require_reachable(training::gradients_of(reducer), reach == Reach::device);
}

Optimizer::Optimizer(std::vector<Parameter> parameters, double learning_rate, Reach reach)
    : own_{std::move(parameters)},
      own_ranges_{whole_ranges(own_)},
      learning_rate_{learning_rate},
      memory_{std::make_unique<Memory>()} {
  require_reachable({own_, own_ranges_}, reach == Reach::device);
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
  if (type == DType::f32 || type == DType::f64)
    return update({parameter, values, gradient, pieces, type, range.count});

  std::array<float, kBlock> gradients;
  auto* master = static_cast<float*>(pieces.back());
  std::vector<void*> state{pieces.begin(), pieces.end() - 1};
  for (std::size_t done = 0; done < range.count; done += kBlock) {
    const std::size_t some = std::min(kBlock, range.count - done);
    training::to_floats(moved_on(gradient, done * size_of(type)), type, gradients.data(), some);
    update({parameter, master + done, gradients.data(), state, DType::f32, some});
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
    : Optimizer{reducer, options.learning_rate}, options_{std::move(options)} {}
Sgd::Sgd(std::vector<Parameter> parameters, SgdOptions options)
    : Optimizer{std::move(parameters), options.learning_rate}, options_{std::move(options)} {}

std::vector<std::string_view> Sgd::kinds() const {
  if (options_.momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::update(const Piece& piece) const {
  const bool decays = !options_.decays || options_.decays(piece.parameter);
  training::sgd(piece.values, piece.gradient, piece.state.empty() ? nullptr : piece.state[0],
                piece.type, piece.count,
                {.learning_rate = learning_rate(),
                 .momentum = options_.momentum,
                 .dampening = options_.dampening,
                 .weight_decay = decays ? options_.weight_decay : 0,
                 .nesterov = options_.nesterov,
                 .first = steps() == 1});
}

AdamW::AdamW(GradientReducer& reducer, AdamWOptions options)
    : Optimizer{reducer, options.learning_rate}, options_{std::move(options)} {}
AdamW::AdamW(std::vector<Parameter> parameters, AdamWOptions options)
    : Optimizer{std::move(parameters), options.learning_rate}, options_{std::move(options)} {}

std::vector<std::string_view> AdamW::kinds() const { return {"exp_avg", "exp_avg_sq"}; }

void AdamW::update(const Piece& piece) const {
  const bool decays = !options_.decays || options_.decays(piece.parameter);
  const auto step = static_cast<double>(steps());
  training::adamw(piece.values, piece.gradient, piece.state[0], piece.state[1], piece.type,
                  piece.count,
                  {.learning_rate = learning_rate(),
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .weight_decay = decays ? options_.weight_decay : 0,
                   .correction1 = 1 - std::pow(options_.beta1, step),
                   .correction2 = 1 - std::pow(options_.beta2, step)});
}

}  // namespace acc::runtime
