#include "runtime/capi/structs.hpp"
#include "runtime/capi/training_handles.hpp"

#include <acc/acc_training.h>

#include <acc/clip.hpp>
#include <acc/sampler.hpp>
#include <acc/sharding.hpp>
#include <cmath>
#include <limits>

using namespace acc::capi;
using namespace acc::runtime;

struct acc_batches {
  std::vector<std::vector<std::uint64_t>> batches;
  std::size_t remainder = 0;
};

namespace acc::capi {

TensorView view_of(const acc_parameter& tensor, void* data) {
  TensorView view;
  view.data = data;
  view.dtype = to_dtype(tensor.dtype);
  if (static_cast<std::size_t>(view.dtype) >= kDTypes) refuse("there is no such element type");
  if (tensor.dims > 0) view.shape.assign(&given(tensor.shape, "shape"), tensor.shape + tensor.dims);
  if (std::ranges::any_of(view.shape, [](auto extent) { return extent < 0; }))
    refuse("the tensor '" + text_of(tensor.name) + "' has the shape " + to_string(view.shape));
  if (tensor.device >= 0) view.device = {Device::Kind::cuda, tensor.device};
  return view;
}

acc_parameter known_parameter(const acc_parameter& tensor) {
  acc_parameter all{};
  all.device = -1;
  return known_part(&tensor, all);
}

}  // namespace acc::capi

namespace {

constexpr acc_sharding kSharding = ACC_SHARDING_INIT;
constexpr acc_reducer_config kReducer = ACC_REDUCER_CONFIG_INIT;
constexpr acc_sgd kSgd = ACC_SGD_INIT;
constexpr acc_adamw kAdamW = ACC_ADAMW_INIT;

BatchRules rules_of(const acc_sharding& sharding) {
  BatchRules rules;
  rules.batch_size = static_cast<std::size_t>(sharding.batch_size);
  rules.drop_last = sharding.drop_last != 0;
  rules.split_batches = sharding.split_batches != 0;
  rules.even_batches = sharding.even_batches != 0;
  return rules;
}

/// The caller's elements may be shorter or longer than ours.
std::vector<Parameter> parameters_of(const acc_parameter* parameters, std::size_t count) {
  std::vector<Parameter> made;
  if (count == 0) return made;
  const std::size_t stride = given(parameters, "parameters").size;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(parameters) + i * stride;
    const auto& one = *reinterpret_cast<const acc_parameter*>(at);
    if (one.size != stride)
      refuse("parameters[" + std::to_string(i) + "].size is " + std::to_string(one.size) +
             ", that of the first " + std::to_string(stride));
    const acc_parameter known = known_parameter(one);
    Parameter& parameter = made.emplace_back();
    if (known.name == nullptr || *known.name == '\0')
      refuse("parameters[" + std::to_string(i) + "] has no name");
    parameter.name = known.name;
    parameter.value = view_of(known, known.values);
    if (known.gradient != nullptr) parameter.gradient = view_of(known, known.gradient);
  }
  return made;
}

ReducerOptions options_of(const acc_reducer_config& config) {
  ReducerOptions options;
  if (config.bucket_bytes > 0) {
    options.bucket_bytes = config.bucket_bytes;
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, config.bucket_bytes);
  }
  options.mode = config.sharded != 0 ? GradientMode::reduce_scatter : GradientMode::all_reduce;
  if (config.compression == ACC_F16)
    options.compression = Compression::fp16;
  else if (config.compression == ACC_BF16)
    options.compression = Compression::bf16;
  else if (config.compression != ACC_DEFAULT)
    refuse("compression is ACC_F16, ACC_BF16 or ACC_DEFAULT");
  options.find_unused_parameters = config.find_unused != 0;
  return options;
}

template <class Body>
acc_status on(acc_reducer* reducer, Body&& body) noexcept {
  return guarded([&] { body(given(reducer, "reducer").reducer); });
}
template <class Body>
acc_status on(acc_optimizer* optimizer, Body&& body) noexcept {
  return guarded([&] { body(*given(optimizer, "optimizer").optimizer); });
}

}  // namespace

extern "C" {

// ---- who gets which sample ----

void acc_sharding_init(acc_sharding* sharding, size_t size) {
  write_defaults(sharding, size, kSharding);
}

acc_status acc_shard(const acc_comm* comm, uint64_t samples, const acc_sharding* sharding,
                     uint64_t epoch, acc_batches** batches) {
  return made(batches, [&] {
    const auto& group = given(comm, "comm").group;
    const acc_sharding how = known_part(sharding, kSharding);
    if (samples > kMostSamples)  // a batch of each would be made
      refuse("samples is " + std::to_string(samples) + ": at most 2^40");
    const auto count = static_cast<std::size_t>(samples);
    const auto order = how.shuffle != 0 ? IndexOrder::shuffled(count, how.seed, epoch)
                                        : IndexOrder::sequential(count);
    auto rules = rules_of(how);
    // Alone nothing needs to be even: the last batch is as short as it is. As DataLoader.
    if (group.size() == 1) rules.even_batches = false;
    const BatchSamplerShard shard{order, rules, group.rank(), group.size()};
    auto all = std::make_unique<acc_batches>();
    all->batches.reserve(shard.size());
    for (std::size_t i = 0; i < shard.size(); ++i) {
      const auto batch = shard[i];
      all->batches.emplace_back(batch.begin(), batch.end());
    }
    all->remainder = shard.remainder();
    return all.release();
  });
}

size_t acc_batches_count(const acc_batches* batches) {
  return batches != nullptr ? batches->batches.size() : 0;
}
const uint64_t* acc_batches_get(const acc_batches* batches, size_t batch, size_t* count) {
  const bool there = batch < acc_batches_count(batches);
  if (count != nullptr) *count = there ? batches->batches[batch].size() : 0;
  return there ? batches->batches[batch].data() : nullptr;
}
size_t acc_batches_remainder(const acc_batches* batches) {
  return batches != nullptr ? batches->remainder : 0;
}
void acc_batches_free(acc_batches* batches) { delete batches; }

// ---- gradients ----

void acc_reducer_config_init(acc_reducer_config* config, size_t size) {
  write_defaults(config, size, kReducer);
}

acc_status acc_reducer_create(acc_comm* comm, const acc_parameter* parameters, size_t count,
                              const acc_reducer_config* config, acc_reducer** reducer) {
  return made(reducer, [&] {
    return new acc_reducer{GradientReducer{given(comm, "comm").group,
                                           parameters_of(parameters, count),
                                           options_of(known_part(config, kReducer))}};
  });
}

void* acc_reducer_gradient(const acc_reducer* reducer, size_t parameter) {
  if (reducer == nullptr || parameter >= reducer->reducer.parameters().size()) return nullptr;
  return reducer->reducer.gradient(parameter).data;
}

acc_status acc_reducer_zero(acc_reducer* reducer) {
  return on(reducer, [](GradientReducer& r) { r.zero_gradients(); });
}
acc_status acc_reducer_ready(acc_reducer* reducer, size_t parameter) {
  return on(reducer, [&](GradientReducer& r) { r.ready(parameter); });
}
acc_status acc_reducer_finish(acc_reducer* reducer) {
  return on(reducer, [](GradientReducer& r) { r.finish(); });
}
acc_status acc_reducer_gather_means(acc_reducer* reducer) {
  return on(reducer, [](GradientReducer& r) { r.gather_means(); });
}
acc_status acc_reducer_sync(acc_reducer* reducer, int32_t on) {
  return guarded([&] {
    auto& handle = given(reducer, "reducer");
    if (on != 0)
      handle.quiet.reset();
    else if (!handle.quiet)
      handle.quiet.emplace(handle.reducer.no_sync());
  });
}
void acc_reducer_free(acc_reducer* reducer) { delete reducer; }

// ---- optimizers ----

void acc_sgd_init(acc_sgd* options, size_t size) { write_defaults(options, size, kSgd); }
void acc_adamw_init(acc_adamw* options, size_t size) { write_defaults(options, size, kAdamW); }

acc_status acc_sgd_create(acc_reducer* reducer, const acc_sgd* options, acc_optimizer** optimizer) {
  return made(optimizer, [&] {
    const acc_sgd from = known_part(options, kSgd);
    SgdOptions how;
    how.learning_rate = from.learning_rate;
    how.momentum = from.momentum;
    how.dampening = from.dampening;
    how.weight_decay = from.weight_decay;
    how.nesterov = from.nesterov != 0;
    return new acc_optimizer{std::make_unique<Sgd>(given(reducer, "reducer").reducer, how)};
  });
}

acc_status acc_adamw_create(acc_reducer* reducer, const acc_adamw* options,
                            acc_optimizer** optimizer) {
  return made(optimizer, [&] {
    const acc_adamw from = known_part(options, kAdamW);
    AdamWOptions how;
    how.learning_rate = from.learning_rate;
    how.beta1 = from.beta1;
    how.beta2 = from.beta2;
    how.epsilon = from.epsilon;
    how.weight_decay = from.weight_decay;
    return new acc_optimizer{std::make_unique<AdamW>(given(reducer, "reducer").reducer, how)};
  });
}

acc_status acc_optimizer_step(acc_optimizer* optimizer) {
  return on(optimizer, [](Optimizer& o) { o.step(); });
}
acc_status acc_optimizer_zero_grad(acc_optimizer* optimizer) {
  return on(optimizer, [](Optimizer& o) { o.zero_grad(); });
}
double acc_optimizer_learning_rate(const acc_optimizer* optimizer) {
  return optimizer != nullptr ? optimizer->optimizer->learning_rate()
                              : std::numeric_limits<double>::quiet_NaN();
}
acc_status acc_optimizer_set_learning_rate(acc_optimizer* optimizer, double rate) {
  return on(optimizer, [&](Optimizer& o) {
    if (!std::isfinite(rate)) refuse("the learning rate isn't a finite number");
    o.set_learning_rate(rate);
  });
}
uint64_t acc_optimizer_steps(const acc_optimizer* optimizer) {
  return optimizer != nullptr ? optimizer->optimizer->steps() : 0;
}
void acc_optimizer_free(acc_optimizer* optimizer) { delete optimizer; }

acc_status acc_clip_grad_norm(acc_optimizer* optimizer, double max_norm, double* norm) {
  return on(optimizer, [&](Optimizer& o) {
    const auto found = clip_grad_norm(o, max_norm);
    if (norm != nullptr) *norm = found.norm;
  });
}
acc_status acc_clip_grad_value(acc_optimizer* optimizer, double limit) {
  return on(optimizer, [&](Optimizer& o) { clip_grad_value(o, limit); });
}

}  // extern "C"
