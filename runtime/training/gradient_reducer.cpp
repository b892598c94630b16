#include "runtime/training/gradient_reducer_state.hpp"
#include "runtime/user_call.hpp"

#include <acc/error.hpp>
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace acc::runtime {

using training::BucketMemory;
using training::named;

GradientReducer::GradientReducer(ProcessGroup group, std::vector<Parameter> parameters,
                                 ReducerOptions options)
    : state_{[&] {
        const InUserCall within{UserCall::gradient_reducer};
        return std::make_unique<State>(std::move(group), std::move(parameters), std::move(options));
      }()} {
  const InUserCall within{UserCall::gradient_reducer};
  broadcast_buffers();
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

std::span<const Parameter> GradientReducer::parameters() const noexcept {
  return state_->parameters();
}
const TensorView& GradientReducer::gradient(std::size_t index) const {
  return state_->layout.parameters().at(index).gradient;
}
bool GradientReducer::has_gradient(std::size_t index) const {
  return index < state_->got.size() && state_->has_gradient(index);
}
std::span<const GradientRange> GradientReducer::ranges() const noexcept {
  return state_->layout.ranges();
}
bool GradientReducer::syncing() const noexcept { return state_->syncing; }
bool GradientReducer::in_backward() const noexcept { return state_->begun; }
std::chrono::nanoseconds GradientReducer::exposed() const noexcept { return state_->exposed; }
std::vector<std::size_t> GradientReducer::order() const { return state_->layout.order(); }
ProcessGroup& GradientReducer::group() const noexcept { return state_->group; }
GradientMode GradientReducer::mode() const noexcept { return state_->options.mode; }
void* GradientReducer::stream() const noexcept { return state_->options.how.stream; }

std::size_t GradientReducer::bucket_count() const noexcept { return state_->buckets().size(); }

std::vector<GradientReducer::Bucket> GradientReducer::buckets() const {
  std::vector<Bucket> buckets;
  for (const BucketMemory& bucket : state_->buckets()) {
    Bucket& public_bucket = buckets.emplace_back();
    for (const training::Slot& slot : bucket.slots)
      public_bucket.parameters.push_back(slot.parameter);
    public_bucket.bytes = bucket.bytes();
    public_bucket.dtype = bucket.wire_type;
  }
  return buckets;
}

void GradientReducer::zero_gradients() {
  require_between_backwards("zero_gradients");
  state_->restored.empty() ? state_->zero_gradients() : state_->put_restored();
}

void GradientReducer::require_between_backwards(std::string_view what) const {
  if (!state_->begun) return;
  throw Error{ErrorCode::invalid_argument,
              std::string{what} +
                  " in the middle of a backward: finish() or end_backward() ends it, cancel() or "
                  "cancel_backward() takes it back"};
}

void GradientReducer::ready(std::size_t index) {
  const InUserCall within{UserCall::ready};
  State& s = *state_;
  if (index >= s.parameters().size())
    throw Error{ErrorCode::invalid_argument, "ready(" + std::to_string(index) + "): there are " +
                                                 std::to_string(s.parameters().size()) +
                                                 " parameters"};
  if (s.is_ready[index] != 0)
    throw Error{ErrorCode::invalid_argument, "ready: " + named(s.parameters(), {{index}}) +
                                                 " is ready for the second time in one backward"};
  s.ready(index);
}

void GradientReducer::finish() {
  const InUserCall within{UserCall::backward};
  State& s = *state_;
  if (!s.begun) s.refuse_parts();
  if (!s.is_reduced()) {
    s.added_up = true;
    s.means = 0;
    s.restored.clear();
    return s.begin_backward();
  }
  const std::vector<std::size_t> absent = s.missing();
  const bool known = s.static_missing && *s.static_missing == absent;
  if (!absent.empty() && !known && (!s.options.find_unused_parameters || s.static_missing))
    s.refuse_missing(absent);
  const bool asks = s.options.find_unused_parameters && !s.static_missing;
  const auto start = std::chrono::steady_clock::now();
  s.finish(absent, asks);
  s.exposed = std::chrono::steady_clock::now() - start;
  if (asks && s.options.static_graph) s.static_missing = absent;
  if (asks && !s.options.static_graph) s.used_anywhere.clear();
  std::ranges::fill(s.used, 0);
  s.added_up = false;
  s.means = ++s.reductions;
  s.step_means.reduced(s.scatters_now() && s.group.size() > 1);
  s.settle_layout();
  s.begin_backward();
}

void GradientReducer::cancel() {
  State& s = *state_;
  {
    // Ranks that got further have started the same buckets within ready() or backward().
    const InUserCall within{UserCall::backward};
    if (!s.begun) s.gather_means();  // where a backward has begun that was done before it
    s.cancel();
  }
  // A rank that didn't cancel has its next call instead: a mismatch, and not two kinds of weights.
  const InUserCall within{UserCall::cancel_backward};
  s.group.barrier();
}

// ---- in the middle of an accumulated step ----

void GradientReducer::reduce_whole(bool whole) {
  require_between_backwards("reduce_whole");
  state_->whole = whole;
}

void GradientReducer::gather_means() {
  const InUserCall within{UserCall::backward};
  require_between_backwards("gather_means");
  state_->gather_means();
}

void GradientReducer::part_changed() noexcept {
  if (state_->scatters() && state_->group.size() > 1) state_->step_means.part_changed();
}

void GradientReducer::means_taken() noexcept { state_->means_taken(); }

bool GradientReducer::accumulating() const noexcept { return state_->added_up; }

std::uint64_t GradientReducer::means() const noexcept { return state_->means; }

std::string GradientReducer::used() const {
  const State& s = *state_;
  std::string used;
  for (std::size_t i = 0; i < s.used.size(); ++i)
    used += s.used[i] != 0 ? '1' : s.got[i] == 0 ? '0' : s.undefined[i] == 0 ? '2' : '3';
  return used;
}

void GradientReducer::restore_gradients(std::vector<HostTensor> gradients, std::string_view used,
                                        bool accumulating) {
  State& s = *state_;
  require_between_backwards("restore_gradients");
  const auto mine = s.parameters();
  if (gradients.empty()) {
    s.restored.clear();
    std::ranges::fill(s.used, 0);
    s.added_up = false;
    return s.zero_gradients();
  }
  bool fits = gradients.size() == mine.size() && used.size() == mine.size();
  for (std::size_t i = 0; fits && i < mine.size(); ++i)
    fits = gradients[i].bytes().size() == mine[i].gradient.bytes();
  if (!fits) throw Error{ErrorCode::invalid_argument, "restore_gradients: those of another model"};
  s.restored = std::move(gradients);
  std::ranges::transform(used, s.used.begin(), [](char one) { return one == '1' ? 1 : 0; });
  std::ranges::transform(used, s.got.begin(), [](char one) { return one >= '2' ? 1 : 0; });
  s.restored_undefined.assign(used.size(), 0);
  std::ranges::transform(used, s.restored_undefined.begin(),
                         [](char one) { return one == '0' || one == '3' ? 1 : 0; });
  s.tells_unused = false;
  s.added_up = accumulating;
  s.put_restored();
}

GradientReducer::NoSync::NoSync(GradientReducer& reducer) : reducer_{&reducer} {
  reducer.require_between_backwards("no_sync");
  if (!std::exchange(reducer.state_->syncing, false)) reducer_ = nullptr;  // an outer one ends it
}

GradientReducer::NoSync::~NoSync() {
  if (reducer_ != nullptr) reducer_->state_->syncing = true;
}

void GradientReducer::broadcast_buffers() {
  const InUserCall within{UserCall::broadcast_buffers};
  for (const ModelBuffer& buffer : state_->options.buffers) state_->broadcast(buffer.value);
}

void GradientReducer::keep_layout() noexcept { state_->settled = true; }

void GradientReducer::share_values(std::size_t index) {
  State& s = *state_;
  if (!s.scatters())
    throw Error{ErrorCode::invalid_argument, "share_values: every rank has every gradient here"};
  const BucketMemory& bucket = s.buckets().at(index);
  const auto mine = s.layout.own_part(bucket);
  s.layout.values_to_wire(bucket, mine);
  s.sharing.emplace_back(
      index, s.group.all_gather_async(bucket.at(mine.begin), bucket.wire, s.layout.part(bucket),
                                      bucket.wire_type, s.options.how));
}

void GradientReducer::finish_sharing() {
  State& s = *state_;
  try {
    for (const auto& [index, work] : s.sharing) {
      work.wait();
      const BucketMemory& bucket = s.buckets()[index];
      const auto mine = s.layout.own_part(bucket);
      s.layout.values_from_wire(bucket, {0, mine.begin});
      s.layout.values_from_wire(bucket, {mine.end, bucket.count});
    }
  } catch (...) {
    s.drain();
    throw;
  }
  s.sharing.clear();
  std::ranges::fill(s.undefined, 1);
  s.forget_gradients();
  means_taken();
}

}  // namespace acc::runtime
