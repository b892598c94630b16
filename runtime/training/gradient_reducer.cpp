#include "runtime/training/gradient_layout.hpp"
#include "runtime/training/model_agreement.hpp"

#include <acc/error.hpp>
#include <acc/gradient_reducer.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace acc::runtime {

using training::BucketMemory;
using training::GradientLayout;

namespace {

constexpr std::size_t kMostNamed = 8;  ///< parameters in a message

std::string named(std::span<const Parameter> parameters, std::span<const std::size_t> indices) {
  std::string text;
  for (std::size_t i = 0; i < std::min(indices.size(), kMostNamed); ++i) {
    const std::string& name = parameters[indices[i]].name;
    text += (i > 0 ? ", " : "") + (name.empty() ? std::to_string(indices[i]) : "'" + name + "'");
  }
  if (indices.size() > kMostNamed)
    text += " and " + std::to_string(indices.size() - kMostNamed) + " more";
  return text;
}

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

}  // namespace

struct GradientReducer::State {
  State(ProcessGroup its_group, std::vector<Parameter> parameters, ReducerOptions its_options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  ProcessGroup group;
  ReducerOptions options;
  GradientLayout layout;
  bool settled = false;  ///< is the layout final?

  // This backward, and since the last reduction.
  bool syncing = true;
  bool begun = false;                          ///< a ready() of this backward has come
  bool reduces = true;                         ///< was syncing when it came
  std::vector<char> is_ready;                  ///< by parameter, in this backward
  std::vector<char> used;                      ///< by parameter, since the last reduction
  std::vector<std::size_t> missing_in_bucket;  ///< by bucket: how many aren't ready
  std::size_t next_bucket = 0;                 ///< the first that wasn't started
  std::vector<Work> works;                     ///< by bucket
  std::vector<std::size_t> ready_order;        ///< of the first reduced backward
  std::vector<std::pair<std::size_t, std::vector<std::byte>>> kept;  ///< gradients of unused ones
  /// Of a static graph: the parameters that have no gradient here, once that is known.
  std::optional<std::vector<std::size_t>> static_missing;
  std::vector<std::int32_t> used_anywhere;  ///< the map; filled by the reduction
  Work used_work;
  std::vector<std::pair<std::size_t, Work>> sharing;  ///< buckets whose values travel
  std::chrono::nanoseconds exposed{0};

  [[nodiscard]] std::span<const Parameter> parameters() const { return layout.parameters(); }
  [[nodiscard]] const std::vector<BucketMemory>& buckets() const { return layout.buckets(); }
  [[nodiscard]] bool scatters() const { return options.mode == GradientMode::reduce_scatter; }
  /// Is the order of this backward the one to lay buckets out in? Where it may change from one
  /// backward to the next there is nothing to be learned.
  [[nodiscard]] bool learns_order() const {
    return !settled && (!options.find_unused_parameters || options.static_graph);
  }
  /// Not while parts may still be cut anew: then every rank gets all, once.
  [[nodiscard]] bool scatters_now() const { return scatters() && !learns_order(); }

  void begin_backward();
  void ready(std::size_t index);
  void start_complete_buckets();
  void reduce(std::size_t bucket);
  void take_means(const BucketMemory& bucket);
  [[nodiscard]] std::vector<std::size_t> missing() const;
  void take_missing(const std::vector<std::size_t>& absent);
  [[noreturn]] void refuse_missing(const std::vector<std::size_t>& absent);
  void start_map();
  void finish_map();
  void restore_kept();
  void wait_for_all(bool asks);
  void settle_layout();
  void drain() noexcept;
  void broadcast(const TensorView& value);
};

namespace {

/// What can be refused without asking the other ranks, and then what can't.
std::vector<Parameter> checked(std::vector<Parameter> parameters, const ReducerOptions& options,
                               ProcessGroup& group) {
  training::check_parameters(parameters, group.device());
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
      used(layout.parameters().size(), 0) {
  begin_backward();
  for (const Parameter& parameter : layout.parameters()) broadcast(parameter.value);
}

GradientReducer::State::~State() {
  if (next_bucket > 0 || !sharing.empty())
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

void GradientReducer::State::ready(std::size_t index) {
  is_ready[index] = 1;
  used[index] = 1;
  if (!std::exchange(begun, true)) reduces = syncing;
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
    if (used[index] != 0) {  // in a backward that wasn't reduced: what was added up counts
      layout.to_wire(index);
    } else {
      kept.emplace_back(index, layout.zero_on_wire(index));
    }
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
  // A map in host memory can't travel by a backend of devices.
  const std::string mine{used.begin(), used.end()};
  for (const std::string& map : group.all_gather_object(mine))
    for (std::size_t i = 0; i < used_anywhere.size(); ++i) used_anywhere[i] |= map.at(i);
}

/// Gradients that nobody used stay as they were.
void GradientReducer::State::restore_kept() {
  for (const auto& [index, bytes] : kept)
    if (used_anywhere[index] == 0) layout.put_back(index, bytes);
  kept.clear();
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
  restore_kept();
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

/// Nothing may be in flight when the memory goes; what a call failed with was told already.
void GradientReducer::State::drain() noexcept {
  const auto ended = [](const Work& work) {
    try {
      work.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first cause is with the caller
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

// ---- the public class ----

GradientReducer::GradientReducer(ProcessGroup group, std::vector<Parameter> parameters,
                                 ReducerOptions options)
    : state_{std::make_unique<State>(std::move(group), std::move(parameters), std::move(options))} {
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
std::span<const GradientRange> GradientReducer::ranges() const noexcept {
  return state_->layout.ranges();
}
bool GradientReducer::syncing() const noexcept { return state_->syncing; }
bool GradientReducer::in_backward() const noexcept { return state_->begun; }
std::chrono::nanoseconds GradientReducer::exposed() const noexcept { return state_->exposed; }
std::vector<std::size_t> GradientReducer::order() const { return state_->layout.order(); }
ProcessGroup& GradientReducer::group() const noexcept { return state_->group; }
GradientMode GradientReducer::mode() const noexcept { return state_->options.mode; }

std::size_t GradientReducer::bucket_count() const noexcept { return state_->buckets().size(); }

std::vector<GradientReducer::Bucket> GradientReducer::buckets() const {
  std::vector<Bucket> buckets;
  for (const BucketMemory& bucket : state_->buckets()) {
    Bucket& told = buckets.emplace_back();
    for (const training::Slot& slot : bucket.slots) told.parameters.push_back(slot.parameter);
    told.bytes = bucket.bytes();
    told.dtype = bucket.wire_type;
  }
  return buckets;
}

void GradientReducer::zero_gradients() {
  for (const Parameter& parameter : state_->parameters())
    training::fill_zero(parameter.gradient.data, parameter.gradient.bytes(),
                        parameter.gradient.device, state_->options.how.stream);
}

void GradientReducer::ready(std::size_t index) {
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
  State& s = *state_;
  if (!(s.begun ? s.reduces : s.syncing)) return s.begin_backward();
  const std::vector<std::size_t> absent = s.missing();
  const bool known = s.static_missing && *s.static_missing == absent;
  if (!absent.empty() && !known && (!s.options.find_unused_parameters || s.static_missing))
    s.refuse_missing(absent);
  const bool asks = s.options.find_unused_parameters && !s.static_missing;
  const auto start = std::chrono::steady_clock::now();
  try {
    s.take_missing(absent);
    if (asks) s.start_map();
    s.wait_for_all(asks);
  } catch (...) {
    s.drain();
    throw;
  }
  s.exposed = std::chrono::steady_clock::now() - start;
  if (asks && s.options.static_graph) s.static_missing = absent;
  if (asks && !s.options.static_graph) s.used_anywhere.clear();
  std::ranges::fill(s.used, 0);
  s.next_bucket = 0;  // nothing is in flight
  s.settle_layout();
  s.begin_backward();
}

GradientReducer::NoSync::NoSync(GradientReducer& reducer) : reducer_{&reducer} {
  if (reducer.state_->begun)
    throw Error{ErrorCode::invalid_argument, "no_sync in the middle of a backward"};
  if (!std::exchange(reducer.state_->syncing, false)) reducer_ = nullptr;  // an outer one ends it
}

GradientReducer::NoSync::~NoSync() {
  if (reducer_ != nullptr) reducer_->state_->syncing = true;
}

void GradientReducer::broadcast_buffers() {
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
}

}  // namespace acc::runtime
