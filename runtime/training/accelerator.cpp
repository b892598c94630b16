#include "runtime/training/accelerator_state.hpp"
#include "runtime/training/model_agreement.hpp"
#include "runtime/user_call.hpp"

#include <acc/accelerator.hpp>
#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace acc::runtime {
namespace {

UserCall name_of_turn(bool is_local) noexcept {
  return is_local ? UserCall::local_main_process_first : UserCall::main_process_first;
}

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

std::uint64_t accumulation_of(const AcceleratorOptions& options) {
  if (!options.gradient_accumulation_steps) return accumulation_from_environment();
  if (*options.gradient_accumulation_steps == 0)
    throw Error{ErrorCode::invalid_argument,
                "gradient_accumulation_steps is 0: 1 steps the optimizer at every batch"};
  return *options.gradient_accumulation_steps;
}

std::size_t without_padding(std::size_t there, const GradientState& loader) {
  return samples_for_metrics(there, loader.end_of_dataloader(), loader.remainder());
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
          accumulation_of(options), options.sync_with_dataloader, options.sync_each_batch)},
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
Accelerator::State& Accelerator::state() const {
  if (state_) return *state_;
  throw Error{ErrorCode::invalid_argument,
              "this Accelerator was moved from: use the one it went to"};
}
Accelerator::Accelerator(Accelerator&&) noexcept = default;
Accelerator& Accelerator::operator=(Accelerator&&) noexcept = default;
Accelerator::~Accelerator() = default;

// ---- who am I ----

int Accelerator::process_index() const { return state().group.rank(); }
int Accelerator::local_process_index() const { return state().group.local_rank(); }
int Accelerator::num_processes() const { return state().group.size(); }
MixedPrecision Accelerator::mixed_precision() const { return state().precision; }
ProcessGroup& Accelerator::group() const { return state().group; }

Device Accelerator::device() const { return state().group.device(); }

// ---- in turn ----

void Accelerator::wait_for_everyone() {
  const InUserCall within{UserCall::wait_for_everyone};
  state().group.barrier();
}

Accelerator::Turn::Turn(ProcessGroup& group, bool goes_first, bool is_local)
    : is_local_{is_local}, group_{goes_first ? &group : nullptr} {
  const InUserCall within{name_of_turn(is_local)};
  if (!goes_first) group.barrier();
}

Accelerator::Turn::~Turn() {
  if (group_ == nullptr) return;
  const InUserCall within{name_of_turn(is_local_)};
  try {
    group_->barrier();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the group is broken, and its next use reports it
  }
}

Accelerator::Turn Accelerator::main_process_first() {
  return Turn{state().group, is_main_process(), false};
}
Accelerator::Turn Accelerator::local_main_process_first() {
  return Turn{state().group, is_local_main_process(), true};
}

void Accelerator::print_line(const std::string& line) const {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

// ---- tensors and lists ----

HostTensor Accelerator::gather(const ConstTensorView& mine) {
  return runtime::gather(state().group, mine);
}

std::vector<HostTensor> Accelerator::gather(std::span<const TensorView> mine) {
  std::vector<HostTensor> all;
  for (const TensorView& tensor : mine) all.push_back(gather(tensor));
  return all;
}

std::vector<std::string> Accelerator::gather_object(std::span<const std::string> mine) {
  return runtime::gather_object(state().group, mine);
}

HostTensor Accelerator::gather_for_metrics(const ConstTensorView& mine) {
  const InUserCall within{UserCall::gather_for_metrics};
  HostTensor all = gather(mine);
  if (mine.shape.empty()) return all;  // one value of each rank: no duplicates
  const auto there = static_cast<std::size_t>(all.shape().front());
  const std::size_t count = without_padding(there, *state().gradient_state);
  return count == there ? all : first_of(all.view(), count);
}

std::vector<HostTensor> Accelerator::gather_for_metrics(std::span<const TensorView> mine) {
  std::vector<HostTensor> all;
  for (const TensorView& tensor : mine) all.push_back(gather_for_metrics(tensor));
  return all;
}

std::vector<std::string> Accelerator::gather_for_metrics(std::span<const std::string> mine) {
  const InUserCall within{UserCall::gather_for_metrics};
  std::vector<std::string> all = gather_object(mine);
  all.resize(without_padding(all.size(), *state().gradient_state));
  return all;
}

HostTensor Accelerator::pad_across_processes(const ConstTensorView& mine, int dim, double pad_index,
                                             bool pad_first) {
  return runtime::pad_across_processes(state().group, mine, dim, pad_index, pad_first);
}

HostTensor Accelerator::reduce(const ConstTensorView& mine, Reduction how) {
  return runtime::reduce(state().group, mine, how);
}

void Accelerator::set_trigger() { state().trigger.set(); }
bool Accelerator::check_trigger() { return state().trigger.check(state().group); }

// ---- the loop ----

GradientReducer& Accelerator::prepare_model(std::vector<Parameter> parameters,
                                            ReducerOptions options) {
  const InUserCall within{UserCall::prepare_model};
  state().refuse_shared_memory(parameters);
  std::vector<ModelBuffer> buffers = options.buffers;
  GradientReducer& made =
      state().reducers.emplace_back(state().group, std::move(parameters), std::move(options));
  state().buffers.push_back(std::move(buffers));
  return made;
}

void Accelerator::prepare(Optimizer& optimizer) {
  if (std::ranges::find(state().optimizers, &optimizer) != state().optimizers.end())
    throw Error{ErrorCode::invalid_argument, "prepare: this optimizer is prepared already"};
  training::check_same("prepare: the ranks have different optimizers", optimizer.description(),
                       state().group);
  state().optimizers.push_back(&optimizer);
}

void Accelerator::prepare(Scheduler& scheduler, SchedulerOptions options) {
  if (state().find(scheduler) != nullptr)
    throw Error{ErrorCode::invalid_argument, "prepare: this scheduler is prepared already"};
  training::check_same("prepare: the ranks have different schedulers", scheduler.description(),
                       state().group);
  state().schedulers.push_back({&scheduler, options});
}

void Accelerator::prepare(LoaderBase& loader) {
  training::check_same(loader.options().name + ": the ranks have different loaders",
                       loader.description(), state().group);
  loader.set_gradient_state(state().gradient_state);
  state().loaders.push_back(&loader);
}

void Accelerator::clear() { state().clear(); }

std::shared_ptr<GradientState> Accelerator::gradient_state() const {
  return state().gradient_state;
}

Accelerator::Accumulation Accelerator::accumulate() {
  std::vector<GradientReducer*> all;
  for (GradientReducer& reducer : state().reducers) all.push_back(&reducer);
  return accumulate(all);
}

Accelerator::Accumulation Accelerator::accumulate(std::span<GradientReducer* const> reducers) {
  for (const GradientReducer* reducer : reducers) reducer->require_between_backwards("accumulate");
  state().gradient_state->next_batch();
  Accumulation batch;
  // Means that the next batch adds to are needed in full on every rank.
  for (GradientReducer* reducer : reducers) reducer->reduce_whole(!sync_gradients());
  if (state().gradient_state->exchange()) return batch;
  for (GradientReducer* reducer : reducers) batch.quiet_.push_back(reducer->no_sync());
  return batch;
}

GradientReducer::NoSync Accelerator::no_sync(GradientReducer& reducer) { return reducer.no_sync(); }
bool Accelerator::sync_gradients() const { return state().gradient_state->sync_gradients(); }
std::uint64_t Accelerator::gradient_accumulation_steps() const {
  return state().gradient_state->steps();
}

double Accelerator::backward_factor() const {
  return state().scaler.scale() / static_cast<double>(gradient_accumulation_steps());
}

void Accelerator::begin_backward() { state().gather_means(); }
void Accelerator::end_backward() {
  state().gradient_state->note_training();
  // A loop with several models runs backward through some of them. If none has begun there was no
  // gradient at all, which the reducers report by name.
  const bool any = std::ranges::any_of(state().reducers, &GradientReducer::in_backward);
  for (GradientReducer& reducer : state().reducers)
    if (!any || reducer.in_backward()) reducer.finish();
  for (const auto& hook : state().hooks) hook();
}

void Accelerator::cancel_backward() {
  state().gather_means();  // of all before any is cancelled, in the order of begin_backward()
  for (GradientReducer& reducer : state().reducers) reducer.cancel();
  state().scaler.discard_all();
}

void Accelerator::on_backward_end(std::function<void()> hook) {
  state().hooks.push_back(std::move(hook));
}

void Accelerator::unscale_gradients(Optimizer& optimizer) {
  if (!state().scaler.unscaled(optimizer)) state().scaler.unscale(optimizer);
}

ClippedNorm Accelerator::clip_grad_norm(Optimizer& optimizer, double max_norm, Norm norm) {
  const InUserCall within{UserCall::clip_grad_norm};
  unscale_gradients(optimizer);
  return runtime::clip_grad_norm(optimizer, max_norm, norm);
}

void Accelerator::clip_grad_value(Optimizer& optimizer, double limit) {
  unscale_gradients(optimizer);
  runtime::clip_grad_value(optimizer, limit);
}

bool Accelerator::step(Optimizer& optimizer) {
  const InUserCall within{UserCall::step};
  if (!sync_gradients()) return false;
  const bool stepped = state().scaler.step(optimizer);
  state().scaler.update();
  return stepped;
}

void Accelerator::step(Scheduler& scheduler) {
  const State::PreparedScheduler* prepared = state().find(scheduler);
  if (prepared == nullptr)
    throw Error{ErrorCode::invalid_argument, "step: this scheduler isn't prepared"};
  if (!prepared->options.step_with_optimizer) return scheduler.step();
  if (!sync_gradients()) return scheduler.count_accumulated_batch();
  if (state().scaler.step_was_skipped(scheduler.optimizer())) return;
  if (state().splits_batches(prepared->options)) return scheduler.step();
  // Each batch of the loop counts as several of one process. As Accelerate's, also at the end.
  for (int i = 0; i < num_processes(); ++i)
    if (!scheduler.total_steps() || scheduler.count() <= *scheduler.total_steps()) scheduler.step();
}

void Accelerator::zero_grad(Optimizer& optimizer) {
  if (!sync_gradients()) return;
  optimizer.zero_grad();
  state().scaler.discard(optimizer);
}

bool Accelerator::optimizer_step_was_skipped() const { return state().scaler.step_was_skipped(); }
LossScaler& Accelerator::scaler() { return state().scaler; }

// ---- random numbers ----

void Accelerator::set_seed(std::uint64_t seed, bool device_specific) {
  const auto stream = device_specific ? static_cast<std::uint64_t>(process_index()) + 1 : 0;
  state().generator = Generator{seed, stream};
}

Generator& Accelerator::generator() { return state().generator; }

// ---- project ----

const std::filesystem::path& Accelerator::project_dir() const {
  return state().options.project.project_dir;
}
const std::filesystem::path& Accelerator::logging_dir() const {
  return state().options.project.logging_dir;
}
std::uint64_t Accelerator::save_iteration() const { return state().options.project.iteration; }

}  // namespace acc::runtime
