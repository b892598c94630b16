#include "runtime/training/gradient_reducer_state.hpp"

#include "runtime/training/gradients.hpp"
#include "runtime/training/model_agreement.hpp"

#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace acc::runtime {

using training::BucketMemory;
using training::GradientLayout;
using training::named;

namespace training {

std::string named(std::span<const Parameter> parameters, std::span<const std::size_t> indices) {
  constexpr std::size_t kMostNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(indices.size(), kMostNamed); ++i) {
    const std::string& name = parameters[indices[i]].name;
    text += (i > 0 ? ", " : "") + (name.empty() ? std::to_string(indices[i]) : "'" + name + "'");
  }
  if (indices.size() > kMostNamed)
    text += " and " + std::to_string(indices.size() - kMostNamed) + " more";
  return text;
}

}  // namespace training

namespace {

std::string to_bytes(std::span<const std::size_t> order) {
  std::string text;
  for (const std::size_t index : order) text += std::to_string(index) + ' ';
  return text;
}

std::vector<std::size_t> order_from_bytes(std::string_view text) {
  std::vector<std::size_t> order;
  for (std::size_t end = text.find(' '); end != std::string_view::npos; end = text.find(' ')) {
    order.push_back(std::stoul(std::string{text.substr(0, end)}));
    text.remove_prefix(end + 1);
  }
  return order;
}

/// Local checks first, then those that need the other ranks.
std::vector<Parameter> checked(std::vector<Parameter> parameters, const ReducerOptions& options,
                               ProcessGroup& group) {
  training::check_parameters(parameters, group.device());
  training::require_apart(parameters, "a gradient reducer");
  if (options.compression != Compression::none) {
    if (options.mode == GradientMode::reduce_scatter)
      throw Error{ErrorCode::invalid_argument,
                  "gradients that are scattered can't be compressed: the parameters come back the "
                  "same way, and would lose bits"};
    for (const Parameter& parameter : parameters)
      training::require_host(parameter.value.device, "compressing gradients",
                             "'" + parameter.name + "'");
  }
  training::check_same_model(parameters, options.buffers, group);
  return parameters;
}

GradientLayout::Options layout_options(const ReducerOptions& options) {
  return {.limits = {options.first_bucket_bytes, options.bucket_bytes},
          .compression = options.compression,
          .scattered = options.mode == GradientMode::reduce_scatter,
          .stream = options.how.stream};
}

}  // namespace

GradientReducer::State::State(ProcessGroup its_group, std::vector<Parameter> parameters,
                              ReducerOptions its_options)
    : group{std::move(its_group)},
      options{std::move(its_options)},
      layout{checked(std::move(parameters), options, group), group, layout_options(options)},
      used(layout.parameters().size(), 0),
      got(used),
      undefined(used.size(), 1) {
  begin_backward();
  for (const Parameter& parameter : layout.parameters()) broadcast(parameter.value);
}

GradientReducer::State::~State() {
  // Peers may have begun what this one has not.
  if ((begun && reduces) || next_bucket > 0 || !sharing.empty())
    group.abort("a gradient reducer went away in the middle of a backward");
  drain();
}

// ---- a backward ----

void GradientReducer::State::begin_backward() {
  is_ready.assign(parameters().size(), 0);
  missing_in_bucket.clear();
  for (const BucketMemory& bucket : buckets()) missing_in_bucket.push_back(bucket.slots.size());
  works.assign(buckets().size(), Work{});
  next_bucket = 0;
  begun = false;
  ready_order.clear();
}

/// What this backward adds can't be told any more from this rank's sums beside its part.
void GradientReducer::State::refuse_parts() const {
  if (!step_means.are_parts()) return;
  throw Error{ErrorCode::invalid_argument,
              "a backward that adds to means that are scattered: gather_means() before it makes "
              "them whole, zero_gradients() begins a new step"};
}

void GradientReducer::State::ready(std::size_t index) {
  if (!begun) {
    refuse_parts();
    begun = true;
    reduces = syncing;
    restored.clear();
  }
  is_ready[index] = 1;
  used[index] = 1;
  undefined[index] = 0;
  if (!reduces) return;
  if (learns_order()) ready_order.push_back(index);
  layout.to_wire(index);
  --missing_in_bucket[layout.bucket_of(index)];
  start_complete_buckets();
}

/// In the order of their index, whatever order they become complete in: the same on all ranks.
void GradientReducer::State::start_complete_buckets() {
  while (next_bucket < buckets().size() && missing_in_bucket[next_bucket] == 0)
    reduce(next_bucket++);
}

void GradientReducer::State::reduce(std::size_t index) {
  const BucketMemory& bucket = buckets()[index];
  const ReduceOp op = bucket.compressed() ? ReduceOp::sum : ReduceOp::avg;
  if (scatters_now()) {
    works[index] =
        group.reduce_scatter_async(bucket.wire, bucket.at(layout.own_part(bucket).begin),
                                   layout.part(bucket), bucket.wire_type, op, options.how);
  } else {
    works[index] = group.all_reduce_async(bucket.wire, bucket.wire, bucket.count, bucket.wire_type,
                                          op, options.how);
  }
}

void GradientReducer::State::take_means(const BucketMemory& bucket) {
  const GradientLayout::Span all{0, bucket.count};
  layout.from_wire(bucket, scatters_now() ? layout.own_part(bucket) : all, used_anywhere);
}

std::vector<std::size_t> GradientReducer::State::missing() const {
  std::vector<std::size_t> absent;
  for (std::size_t i = 0; i < is_ready.size(); ++i)
    if (is_ready[i] == 0) absent.push_back(i);
  return absent;
}

void GradientReducer::State::take_missing(const std::vector<std::size_t>& absent) {
  for (const std::size_t index : absent) {
    // As torch: what was added up without being reduced counts, and so does the mean of a backward
    // before it in this step, to which the other ranks add.
    if (used[index] == 0) kept.emplace_back(index, layout.contents(index));
    undefined[index] != 0 ? layout.zero_on_wire(index) : layout.to_wire(index);
    --missing_in_bucket[layout.bucket_of(index)];
  }
  start_complete_buckets();
}

void GradientReducer::State::refuse_missing(const std::vector<std::size_t>& absent) {
  const std::string what =
      "rank " + std::to_string(group.rank()) +
      ": at the end of backward these parameters have no "
      "gradient: " +
      named(parameters(), absent) +
      (static_missing ? "; they had one in the first backward of what is said to be a static graph"
                      : "; find_unused_parameters is for models where that is meant");
  group.abort(what);  // the peers wait for these gradients, or soon will
  drain();
  throw Error{ErrorCode::mismatch, what, {group.rank()}, "gradient_reducer"};
}

void GradientReducer::State::start_map() {
  used_anywhere.assign(used.begin(), used.end());
  if (layout.on_host())
    used_work =
        group.all_reduce_async(used_anywhere.data(), used_anywhere.data(), used_anywhere.size(),
                               DType::i32, ReduceOp::sum, options.how);
}

void GradientReducer::State::finish_map() {
  if (layout.on_host()) return used_work.wait();
  // A device backend needs the map in device memory.
  const std::string mine{used.begin(), used.end()};
  for (const std::string& map : group.all_gather_object(mine))
    for (std::size_t i = 0; i < used_anywhere.size(); ++i) used_anywhere[i] |= map.at(i);
}

/// Gradients that no rank used stay as they were.
void GradientReducer::State::restore_kept(std::span<const std::int32_t> have) {
  for (const auto& [index, bytes] : kept)
    if (have[index] == 0) layout.put_back(index, bytes);
  kept.clear();
}

void GradientReducer::State::note_gradients() {
  tells_unused = !used_anywhere.empty();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (tells_unused && used_anywhere[i] == 0) continue;
    got[i] = 1;
    undefined[i] = 0;
  }
}

void GradientReducer::State::forget_gradients() {
  tells_unused = false;
  std::ranges::fill(got, 0);
}

/// Sums that weren't reduced yet still count.
void GradientReducer::State::means_taken() noexcept {
  for (std::size_t i = 0; i < undefined.size(); ++i)
    if (used[i] == 0) undefined[i] = 1;
  step_means.step_ended();
}

void GradientReducer::State::wait_for_all(bool asks) {
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    works[b].wait();
    if (!asks) take_means(buckets()[b]);
  }
  if (asks) {  // only the map tells which gradients stay as they were
    finish_map();
    for (const BucketMemory& bucket : buckets()) take_means(bucket);
  }
  restore_kept(used_anywhere);
}

/// From each rank its part, so that gradients are as after a reduction that wasn't scattered.
void GradientReducer::State::gather_means() {
  step_means.asked_to_gather();
  if (!step_means.are_parts()) return;
  std::vector<std::int32_t> have;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    have.push_back(has_gradient(i) ? 1 : 0);
    if (have[i] == 0) kept.emplace_back(i, layout.contents(i));
    layout.to_wire(i);
  }
  try {
    for (std::size_t b = 0; b < buckets().size(); ++b) {
      const BucketMemory& bucket = buckets()[b];
      sharing.emplace_back(
          b, group.all_gather_async(bucket.at(layout.own_part(bucket).begin), bucket.wire,
                                    layout.part(bucket), bucket.wire_type, options.how));
    }
    for (const auto& [b, work] : sharing) {
      work.wait();
      const BucketMemory& bucket = buckets()[b];
      const auto mine = layout.own_part(bucket);
      layout.from_wire(bucket, {0, mine.begin}, have);
      layout.from_wire(bucket, {mine.end, bucket.count}, have);
    }
  } catch (...) {
    drain();
    throw;
  }
  sharing.clear();
  restore_kept(have);
  step_means.gathered();
}

/// Once, after the first reduced backward: buckets in the order in which gradients became ready on
/// rank 0.
void GradientReducer::State::settle_layout() {
  const bool learns = learns_order();
  settled = true;
  if (!learns) return;
  std::vector<std::size_t> best = ready_order;
  for (const std::size_t index : layout.order())
    if (std::ranges::find(best, index) == best.end()) best.push_back(index);
  best = order_from_bytes(group.broadcast_object(to_bytes(best), 0));
  if (best != layout.order()) layout.adopt(std::move(best));
}

/// Nothing may be in flight when the memory is freed; errors of calls were reported already.
void GradientReducer::State::drain() noexcept {
  const auto ended = [](const Work& work) {
    try {
      work.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the caller has the first cause
    }
  };
  for (std::size_t b = 0; b < std::min(next_bucket, works.size()); ++b) ended(works[b]);
  ended(used_work);
  for (const auto& [bucket, work] : sharing) ended(work);
  sharing.clear();
  next_bucket = 0;
}

void GradientReducer::State::broadcast(const TensorView& value) {
  group.broadcast(value.data, value.count(), value.dtype, 0, options.how);
}

// ---- its end ----

void GradientReducer::State::finish(const std::vector<std::size_t>& absent, bool asks) {
  try {
    take_missing(absent);
    if (asks) start_map();
    wait_for_all(asks);
  } catch (...) {
    drain();
    throw;
  }
  next_bucket = 0;  // nothing is in flight
  note_gradients();
}

/// The calls of finish(), so that every rank has made the same ones wherever its pass ended. What
/// isn't complete here is NaN to a rank that has finished instead: it must not step with it.
void GradientReducer::State::cancel() {
  if (is_reduced()) {
    const std::vector<std::size_t> absent = missing();
    constexpr int kNaN = 0xff;  // in every byte: NaN in each of the types
    for (const std::size_t index : absent) {
      const TensorView& gradient = parameters()[index].gradient;
      training::fill(gradient.data, kNaN, gradient.bytes(), gradient.device, options.how.stream);
      layout.to_wire(index);
      --missing_in_bucket[layout.bucket_of(index)];
    }
    start_complete_buckets();
    finish({}, options.find_unused_parameters && !static_missing);
    if (!static_missing) used_anywhere.clear();
  }
  std::ranges::fill(used, 0);
  added_up = false;
  begin_backward();
  zero_gradients();
}

void GradientReducer::State::zero_gradients() {
  means = 0;
  forget_gradients();
  std::ranges::fill(undefined, 0);
  step_means.step_ended();
  for (const Parameter& parameter : parameters())
    training::fill(parameter.gradient.data, 0, parameter.gradient.bytes(),
                   parameter.gradient.device, options.how.stream);
}

void GradientReducer::State::put_restored() {
  means = 0;
  undefined = restored_undefined;
  step_means.step_ended();
  for (std::size_t i = 0; i < restored.size(); ++i) {
    const TensorView& gradient = parameters()[i].gradient;
    training::copy(gradient.data, restored[i].bytes().data(), gradient.bytes(), gradient.device,
                   options.how.stream);
  }
  if (!layout.on_host()) cuda::synchronize(options.how.stream);  // the next backward frees them
}

}  // namespace acc::runtime
