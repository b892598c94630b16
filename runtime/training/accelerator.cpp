#include "runtime/training/accelerator_state.hpp"
#include "runtime/training/model_agreement.hpp"

#include <acc/accelerator.hpp>
#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace acc::runtime {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : value;
}

MixedPrecision precision_from_environment() {
  constexpr const char* kVariable = "ACCELERATE_MIXED_PRECISION";
  const std::string_view word = variable(kVariable);
  if (word.empty() || word == "no") return MixedPrecision::no;
  if (word == "fp16") return MixedPrecision::fp16;
  if (word == "bf16") return MixedPrecision::bf16;
  if (word == "fp8") return MixedPrecision::fp8;
  throw Error{ErrorCode::invalid_argument, std::string{kVariable} + " is '" + std::string{word} +
                                               "'; it can be no, fp16, bf16 or fp8"};
}

std::uint64_t accumulation_from_environment() {
  constexpr const char* kVariable = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS";
  const std::string_view word = variable(kVariable);
  if (word.empty()) return 1;
  std::uint64_t steps = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), steps);
  if (error != std::errc{} || end != word.data() + word.size() || steps == 0)
    throw Error{ErrorCode::invalid_argument,
                std::string{kVariable} + " is '" + std::string{word} + "', not a number above 0"};
  return steps;
}

LossScalerOptions scaler_for(MixedPrecision precision, LossScalerOptions options) {
  options.enabled = options.enabled && precision == MixedPrecision::fp16;
  return options;
}

}  // namespace

Accelerator::State::State(ProcessGroup its_group, AcceleratorOptions its_options)
    : group{std::move(its_group)},
      options{std::move(its_options)},
      precision{options.mixed_precision ? *options.mixed_precision : precision_from_environment()},
      gradient_state{std::make_shared<GradientState>(
          options.gradient_accumulation_steps ? *options.gradient_accumulation_steps
                                              : accumulation_from_environment(),
          options.sync_with_dataloader, options.sync_each_batch)},
      scaler{scaler_for(precision, options.scaler), group} {
  if (options.project.logging_dir.empty())
    options.project.logging_dir = options.project.project_dir;
}

Accelerator::Accelerator(AcceleratorOptions options)
    : Accelerator{ProcessGroup::from_environment(options.group), options} {}
Accelerator::Accelerator(ProcessGroup group, AcceleratorOptions options)
    : state_{std::make_unique<State>(std::move(group), std::move(options))} {
  if (device().kind == Device::Kind::cuda) cuda::set_device(device().index);
}
Accelerator::Accelerator(Accelerator&&) noexcept = default;
Accelerator& Accelerator::operator=(Accelerator&&) noexcept = default;
Accelerator::~Accelerator() = default;

// ---- who am I ----

int Accelerator::process_index() const { return state_->group.rank(); }
int Accelerator::local_process_index() const { return state_->group.local_rank(); }
int Accelerator::num_processes() const { return state_->group.size(); }
MixedPrecision Accelerator::mixed_precision() const noexcept { return state_->precision; }
ProcessGroup& Accelerator::group() const noexcept { return state_->group; }

Device Accelerator::device() const { return state_->group.device(); }

// ---- in turn ----

void Accelerator::wait_for_everyone() { state_->group.barrier(); }

Accelerator::Turn::Turn(ProcessGroup& group, bool goes_first)
    : group_{goes_first ? &group : nullptr} {
  if (!goes_first) group.barrier();
}

Accelerator::Turn::~Turn() {
  if (group_ == nullptr) return;
  try {
    group_->barrier();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the group is broken, and says so at its next use
  }
}

Accelerator::Turn Accelerator::main_process_first() {
  return Turn{state_->group, is_main_process()};
}
Accelerator::Turn Accelerator::local_main_process_first() {
  return Turn{state_->group, is_local_main_process()};
}

void Accelerator::print_line(const std::string& line) const {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

// ---- tensors and lists ----

HostTensor Accelerator::gather(const TensorView& mine) {
  return runtime::gather(state_->group, mine);
}

std::vector<HostTensor> Accelerator::gather(std::span<const TensorView> mine) {
  std::vector<HostTensor> all;
  for (const TensorView& tensor : mine) all.push_back(gather(tensor));
  return all;
}

std::vector<std::string> Accelerator::gather_object(std::span<const std::string> mine) {
  return runtime::gather_object(state_->group, mine);
}

HostTensor Accelerator::gather_for_metrics(const TensorView& mine) {
  HostTensor all = gather(mine);
  if (mine.shape.empty()) return all;  // one value of each rank: none is there twice
  const auto there = static_cast<std::size_t>(all.shape().front());
  const GradientState& loader = *state_->gradient_state;
  const std::size_t count =
      samples_for_metrics(there, loader.end_of_dataloader(), loader.remainder());
  return count == there ? all : first_of(all.view(), count);
}

std::vector<HostTensor> Accelerator::gather_for_metrics(std::span<const TensorView> mine) {
  std::vector<HostTensor> all;
  for (const TensorView& tensor : mine) all.push_back(gather_for_metrics(tensor));
  return all;
}

std::vector<std::string> Accelerator::gather_for_metrics(std::span<const std::string> mine) {
  std::vector<std::string> all = gather_object(mine);
  const GradientState& loader = *state_->gradient_state;
  all.resize(samples_for_metrics(all.size(), loader.end_of_dataloader(), loader.remainder()));
  return all;
}

HostTensor Accelerator::pad_across_processes(const TensorView& mine, int dim, double pad_index,
                                             bool pad_first) {
  return runtime::pad_across_processes(state_->group, mine, dim, pad_index, pad_first);
}

HostTensor Accelerator::reduce(const TensorView& mine, Reduction how) {
  return runtime::reduce(state_->group, mine, how);
}

void Accelerator::set_trigger() noexcept { state_->trigger.set(); }
bool Accelerator::check_trigger() { return state_->trigger.check(state_->group); }

// ---- the loop ----

GradientReducer& Accelerator::prepare_model(std::vector<Parameter> parameters,
                                            ReducerOptions options) {
  std::vector<ModelBuffer> buffers = options.buffers;
  GradientReducer& made =
      state_->reducers.emplace_back(state_->group, std::move(parameters), std::move(options));
  state_->buffers.push_back(std::move(buffers));
  return made;
}

void Accelerator::prepare(Optimizer& optimizer) { state_->optimizers.push_back(&optimizer); }
void Accelerator::prepare(LoaderBase& loader) {
  training::check_same_loader(loader, state_->group);
  loader.set_gradient_state(state_->gradient_state);
  state_->loaders.push_back(&loader);
}

std::shared_ptr<GradientState> Accelerator::gradient_state() const noexcept {
  return state_->gradient_state;
}

Accelerator::Accumulation Accelerator::accumulate() {
  std::vector<GradientReducer*> all;
  for (GradientReducer& reducer : state_->reducers) all.push_back(&reducer);
  return accumulate(all);
}

Accelerator::Accumulation Accelerator::accumulate(std::span<GradientReducer* const> reducers) {
  state_->gradient_state->next_batch();
  Accumulation batch;
  if (state_->gradient_state->exchange()) return batch;
  for (GradientReducer* reducer : reducers) batch.quiet_.push_back(reducer->no_sync());
  return batch;
}

GradientReducer::NoSync Accelerator::no_sync(GradientReducer& reducer) { return reducer.no_sync(); }
bool Accelerator::sync_gradients() const noexcept {
  return state_->gradient_state->sync_gradients();
}
std::uint64_t Accelerator::gradient_accumulation_steps() const noexcept {
  return state_->gradient_state->steps();
}

double Accelerator::backward_factor() const noexcept {
  return state_->scaler.scale() / static_cast<double>(gradient_accumulation_steps());
}

void Accelerator::end_backward() {
  // A loop with several models runs backward through some of them. When none has begun, no
  // gradient came at all: that is for the reducers to say, by name.
  const bool any = std::ranges::any_of(state_->reducers, &GradientReducer::in_backward);
  for (GradientReducer& reducer : state_->reducers)
    if (!any || reducer.in_backward()) reducer.finish();
  for (const auto& hook : state_->hooks) hook();
}

void Accelerator::on_backward_end(std::function<void()> hook) {
  state_->hooks.push_back(std::move(hook));
}

void Accelerator::unscale_gradients(Optimizer& optimizer) {
  if (!state_->scaler.unscaled(optimizer)) state_->scaler.unscale(optimizer);
}

ClippedNorm Accelerator::clip_grad_norm(Optimizer& optimizer, double max_norm, Norm norm) {
  unscale_gradients(optimizer);
  return runtime::clip_grad_norm(optimizer, max_norm, norm);
}

void Accelerator::clip_grad_value(Optimizer& optimizer, double limit) {
  unscale_gradients(optimizer);
  runtime::clip_grad_value(optimizer, limit);
}

bool Accelerator::step(Optimizer& optimizer) {
  if (!sync_gradients()) return false;
  const bool stepped = state_->scaler.step(optimizer);
  state_->scaler.update();
  return stepped;
}

void Accelerator::zero_grad(Optimizer& optimizer) {
  if (sync_gradients()) optimizer.zero_grad();
}

bool Accelerator::optimizer_step_was_skipped() const noexcept {
  return state_->scaler.step_was_skipped();
}
LossScaler& Accelerator::scaler() noexcept { return state_->scaler; }

// ---- random numbers ----

void Accelerator::set_seed(std::uint64_t seed, bool device_specific) {
  const auto stream = device_specific ? static_cast<std::uint64_t>(process_index()) + 1 : 0;
  state_->generator = Generator{seed, stream};
}

Generator& Accelerator::generator() noexcept { return state_->generator; }

// ---- project ----

const std::filesystem::path& Accelerator::project_dir() const noexcept {
  return state_->options.project.project_dir;
}
const std::filesystem::path& Accelerator::logging_dir() const noexcept {
  return state_->options.project.logging_dir;
}
std::uint64_t Accelerator::save_iteration() const noexcept {
  return state_->options.project.iteration;
}

}  // namespace acc::runtime
