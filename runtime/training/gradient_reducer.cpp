#include "runtime/training/bucket_memory.hpp"
#include "runtime/training/bucket_plan.hpp"
#include "runtime/training/cast.hpp"
#include "runtime/training/model_agreement.hpp"

#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <acc/gradient_reducer.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace acc::runtime {

using training::BucketMemory;
using training::Slot;

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
  ProcessGroup group;
  std::vector<Parameter> parameters;
  ReducerOptions options;
  std::vector<char> ours;  ///< by parameter: its gradient lies in memory of the reducer

  // The layout.
  std::vector<std::size_t> order;
  std::vector<BucketMemory> buckets;
  std::vector<std::size_t> bucket_of;  ///< by parameter
  std::vector<std::size_t> slot_of;    ///< by parameter, in its bucket
  SharedBuffer wire;
  std::vector<std::byte> uncompressed;  ///< gradients of ours whose wire is narrower
  std::vector<GradientRange> ranges;
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

  [[nodiscard]] bool in_place(std::size_t index) const {
    return ours[index] != 0 && !buckets[bucket_of[index]].compressed();
  }
  [[nodiscard]] bool scatters() const { return options.mode == GradientMode::reduce_scatter; }
  /// Is the order of this backward the one to lay buckets out in? Where it may change from one
  /// backward to the next there is nothing to be learned.
  [[nodiscard]] bool learns_order() const {
    return !settled && (!options.find_unused_parameters || options.static_graph);
  }
  /// Not while parts may still be cut anew: then every rank gets all, once.
  [[nodiscard]] bool scatters_now() const { return scatters() && !learns_order(); }
  [[nodiscard]] bool on_host() const {
    return std::ranges::all_of(
        buckets, [](const BucketMemory& b) { return b.device.kind == Device::Kind::cpu; });
  }
  /// Elements of a bucket that one rank answers for.
  [[nodiscard]] std::size_t part(const BucketMemory& bucket) const {
    return bucket.count / static_cast<std::size_t>(group.size());
  }
  std::byte* gradient_at(std::size_t index, std::size_t element) const {
    const TensorView& gradient = parameters[index].gradient;
    return static_cast<std::byte*>(gradient.data) + element * size_of(gradient.dtype);
  }
  std::byte* value_at(std::size_t index, std::size_t element) const {
    const TensorView& value = parameters[index].value;
    return static_cast<std::byte*>(value.data) + element * size_of(value.dtype);
  }
  [[nodiscard]] const Slot& slot(std::size_t index) const {
    return buckets[bucket_of[index]].slots[slot_of[index]];
  }

  void check_options() const;
  void place_uncompressed();
  void adopt_layout(std::vector<std::size_t> new_order);
  void move_gradients(std::span<const BucketMemory> from, std::span<const std::size_t> old_bucket,
                      std::span<const std::size_t> old_slot);
  void cut_ranges();
  void begin_backward();
  void to_wire(std::size_t index);
  void zero_on_wire(std::size_t index);
  void from_wire(const BucketMemory& bucket);
  void gone(std::size_t index);
  void start_complete_buckets();
  void reduce(std::size_t bucket);
  [[nodiscard]] std::vector<std::size_t> missing() const;
  void take_missing(const std::vector<std::size_t>& absent);
  [[noreturn]] void refuse_missing(const std::vector<std::size_t>& absent);
  void start_map();
  void finish_map();
  void restore_kept();
  void wait_for_all(bool asks);
  void settle_layout();
  void end_backward();
  void drain() noexcept;
  void broadcast(const TensorView& value);
};

// ---- layout ----

void GradientReducer::State::check_options() const {
  if (options.compression != Compression::none && scatters())
    throw Error{ErrorCode::invalid_argument,
                "gradients that are scattered can't be compressed: the parameters come back the "
                "same way, and would lose bits"};
  if (options.compression != Compression::none)
    for (const Parameter& parameter : parameters)
      training::require_host(parameter.value.device, "compressing gradients",
                             "'" + parameter.name + "'");
}

/// Gradients of ours that don't lie on the wire: they never move.
void GradientReducer::State::place_uncompressed() {
  constexpr std::size_t kAlignment = 64;
  const auto padded = [](std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::size_t bytes = kAlignment;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (ours[i] != 0 && !in_place(i)) bytes += padded(parameters[i].value.bytes());
  if (bytes == kAlignment) return;
  uncompressed.resize(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(uncompressed.data());
  std::byte* at = uncompressed.data() + (padded(address) - address);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (ours[i] == 0 || in_place(i)) continue;
    parameters[i].gradient.data = at;
    at += padded(parameters[i].value.bytes());
  }
}

/// Collective. Gradients that lie on the wire keep what they hold.
void GradientReducer::State::adopt_layout(std::vector<std::size_t> new_order) {
  order = std::move(new_order);
  const auto plan =
      training::plan_buckets(parameters, order, {options.first_bucket_bytes, options.bucket_bytes});
  const std::vector<BucketMemory> old_buckets = std::exchange(
      buckets, training::lay_out(parameters, plan, options.compression, group.size()));
  const auto old_bucket = std::exchange(bucket_of, std::vector<std::size_t>(parameters.size()));
  const auto old_slot = std::exchange(slot_of, std::vector<std::size_t>(parameters.size()));
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (std::size_t s = 0; s < buckets[b].slots.size(); ++s) {
      bucket_of[buckets[b].slots[s].parameter] = b;
      slot_of[buckets[b].slots[s].parameter] = s;
    }
  }
  const SharedBuffer old_wire =
      std::exchange(wire, training::allocate(buckets, group, options.how.stream));
  move_gradients(old_buckets, old_bucket, old_slot);
  if (!on_host()) cuda::synchronize(options.how.stream);  // before the old memory goes
  cut_ranges();
  works.assign(buckets.size(), Work{});
  begin_backward();
}

void GradientReducer::State::move_gradients(std::span<const BucketMemory> from,
                                            std::span<const std::size_t> old_bucket,
                                            std::span<const std::size_t> old_slot) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!in_place(i)) continue;
    const BucketMemory& bucket = buckets[bucket_of[i]];
    std::byte* to = bucket.at(slot(i).offset);
    if (!from.empty()) {
      const BucketMemory& old = from[old_bucket[i]];
      training::copy(to, old.at(old.slots[old_slot[i]].offset), parameters[i].value.bytes(),
                     bucket.device, options.how.stream);
    }
    parameters[i].gradient.data = to;
  }
}

void GradientReducer::State::cut_ranges() {
  if (!scatters()) {
    ranges = whole_ranges(parameters);
    return;
  }
  ranges.clear();
  const auto rank = static_cast<std::size_t>(group.rank());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::size_t begin = rank * part(buckets[b]);
    for (const Slot& slot : buckets[b].slots) {
      const auto ours_of_it = training::overlap(slot, begin, begin + part(buckets[b]));
      if (ours_of_it.count > 0)
        ranges.push_back({slot.parameter, ours_of_it.in_parameter, ours_of_it.count, b});
    }
  }
}

// ---- between gradients and wire ----

void GradientReducer::State::to_wire(std::size_t index) {
  if (in_place(index)) return;
  const BucketMemory& bucket = buckets[bucket_of[index]];
  const Slot& place = slot(index);
  if (bucket.compressed()) {
    training::narrow(parameters[index].gradient.data, bucket.own_type, bucket.at(place.offset),
                     bucket.wire_type, place.count, 1.0 / group.size());
  } else {
    training::copy(bucket.at(place.offset), parameters[index].gradient.data,
                   parameters[index].gradient.bytes(), bucket.device, options.how.stream);
  }
}

/// What a parameter that isn't used here adds to the sum.
void GradientReducer::State::zero_on_wire(std::size_t index) {
  const BucketMemory& bucket = buckets[bucket_of[index]];
  const Slot& place = slot(index);
  std::byte* at = bucket.at(place.offset);
  const std::size_t bytes = place.count * size_of(bucket.wire_type);
  if (in_place(index)) {  // it comes back if nobody uses it
    kept.emplace_back(index, std::vector<std::byte>(bytes));
    training::copy(kept.back().second.data(), at, bytes, bucket.device, options.how.stream);
  }
  training::fill_zero(at, bytes, bucket.device, options.how.stream);
}

void GradientReducer::State::from_wire(const BucketMemory& bucket) {
  const std::size_t begin =
      scatters_now() ? static_cast<std::size_t>(group.rank()) * part(bucket) : 0;
  const std::size_t end = scatters_now() ? begin + part(bucket) : bucket.count;
  for (const Slot& place : bucket.slots) {
    const bool keeps = !used_anywhere.empty() && used_anywhere[place.parameter] == 0;
    if (keeps || in_place(place.parameter)) continue;
    const auto piece = training::overlap(place, begin, end);
    if (piece.count == 0) continue;
    std::byte* to = gradient_at(place.parameter, piece.in_parameter);
    if (bucket.compressed()) {
      training::widen(bucket.at(piece.in_bucket), bucket.wire_type, to, bucket.own_type,
                      piece.count);
    } else {
      training::copy(to, bucket.at(piece.in_bucket), piece.count * size_of(bucket.own_type),
                     bucket.device, options.how.stream);
    }
  }
}

// ---- a backward ----

void GradientReducer::State::begin_backward() {
  is_ready.assign(parameters.size(), 0);
  missing_in_bucket.clear();
  for (const BucketMemory& bucket : buckets) missing_in_bucket.push_back(bucket.slots.size());
  next_bucket = 0;
  begun = false;
  ready_order.clear();
}

void GradientReducer::State::gone(std::size_t index) { --missing_in_bucket[bucket_of[index]]; }

/// In the order of their index, whatever order they become complete in: the same on all ranks.
void GradientReducer::State::start_complete_buckets() {
  while (next_bucket < buckets.size() && missing_in_bucket[next_bucket] == 0) reduce(next_bucket++);
}

void GradientReducer::State::reduce(std::size_t index) {
  const BucketMemory& bucket = buckets[index];
  const ReduceOp op = bucket.compressed() ? ReduceOp::sum : ReduceOp::avg;
  if (scatters_now()) {
    const std::size_t count = part(bucket);
    std::byte* mine = bucket.at(static_cast<std::size_t>(group.rank()) * count);
    works[index] =
        group.reduce_scatter_async(bucket.wire, mine, count, bucket.wire_type, op, options.how);
  } else {
    works[index] = group.all_reduce_async(bucket.wire, bucket.wire, bucket.count, bucket.wire_type,
                                          op, options.how);
  }
}

std::vector<std::size_t> GradientReducer::State::missing() const {
  std::vector<std::size_t> absent;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (is_ready[i] == 0) absent.push_back(i);
  return absent;
}

void GradientReducer::State::take_missing(const std::vector<std::size_t>& absent) {
  for (const std::size_t index : absent) {
    // It may have been used in a backward that wasn't reduced: then what was added up counts.
    used[index] != 0 ? to_wire(index) : zero_on_wire(index);
    gone(index);
  }
  start_complete_buckets();
}

void GradientReducer::State::refuse_missing(const std::vector<std::size_t>& absent) {
  const std::string what =
      "rank " + std::to_string(group.rank()) +
      ": at the end of backward these parameters have no "
      "gradient: " +
      named(parameters, absent) +
      (static_missing ? "; they had one in the first backward of what is said to be a static graph"
                      : "; find_unused_parameters is for models where that is meant");
  group.abort(what);  // the peers wait for these gradients, or soon will
  drain();
  throw Error{ErrorCode::mismatch, what, {group.rank()}, "gradient_reducer"};
}

void GradientReducer::State::start_map() {
  used_anywhere.assign(used.begin(), used.end());
  if (on_host())
    used_work =
        group.all_reduce_async(used_anywhere.data(), used_anywhere.data(), used_anywhere.size(),
                               DType::i32, ReduceOp::sum, options.how);
}

void GradientReducer::State::finish_map() {
  if (on_host()) {
    used_work.wait();
  } else {  // a map in host memory can't travel by a backend of devices
    const std::string mine{used.begin(), used.end()};
    for (const std::string& map : group.all_gather_object(mine))
      for (std::size_t i = 0; i < used_anywhere.size(); ++i) used_anywhere[i] |= map.at(i);
  }
}

void GradientReducer::State::restore_kept() {
  for (const auto& [index, bytes] : kept) {
    if (used_anywhere[index] != 0) continue;
    const BucketMemory& bucket = buckets[bucket_of[index]];
    training::copy(bucket.at(slot(index).offset), bytes.data(), bytes.size(), bucket.device,
                   options.how.stream);
  }
  kept.clear();
}

void GradientReducer::State::wait_for_all(bool asks) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    works[b].wait();
    if (!asks) from_wire(buckets[b]);
  }
  if (asks) {  // only the map tells which gradients stay as they were
    finish_map();
    for (const BucketMemory& bucket : buckets) from_wire(bucket);
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
  for (const std::size_t index : order)
    if (std::ranges::find(best, index) == best.end()) best.push_back(index);
  best = order_from_bytes(group.broadcast_object(to_bytes(best), 0));
  if (best != order) adopt_layout(std::move(best));
}

void GradientReducer::State::end_backward() {
  std::ranges::fill(used, 0);
  begin_backward();
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
    : state_{std::make_unique<State>()} {
  State& s = *state_;
  s.group = std::move(group);
  s.parameters = std::move(parameters);
  s.options = std::move(options);
  training::check_parameters(s.parameters);
  s.check_options();
  training::check_same_model(s.parameters, s.options.buffers, s.group);
  for (Parameter& parameter : s.parameters) {
    const bool ours = parameter.gradient.data == nullptr;
    if (ours) parameter.gradient = parameter.value;
    if (ours) parameter.gradient.data = nullptr;
    s.ours.push_back(ours ? 1 : 0);
  }
  s.used.assign(s.parameters.size(), 0);
  s.adopt_layout(training::reversed_order(s.parameters.size()));
  s.place_uncompressed();
  for (const Parameter& parameter : s.parameters) s.broadcast(parameter.value);
  broadcast_buffers();
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;

GradientReducer::~GradientReducer() {
  if (!state_) return;
  if (state_->next_bucket > 0 || !state_->sharing.empty())
    state_->group.abort("a gradient reducer went away in the middle of a backward");
  state_->drain();
}

std::span<const Parameter> GradientReducer::parameters() const noexcept {
  return state_->parameters;
}
const TensorView& GradientReducer::gradient(std::size_t index) const {
  return state_->parameters.at(index).gradient;
}
std::span<const GradientRange> GradientReducer::ranges() const noexcept { return state_->ranges; }
bool GradientReducer::syncing() const noexcept { return state_->syncing; }
bool GradientReducer::in_backward() const noexcept { return state_->begun; }
std::chrono::nanoseconds GradientReducer::exposed() const noexcept { return state_->exposed; }
std::vector<std::size_t> GradientReducer::order() const { return state_->order; }
ProcessGroup& GradientReducer::group() const noexcept { return state_->group; }
GradientMode GradientReducer::mode() const noexcept { return state_->options.mode; }

std::size_t GradientReducer::bucket_count() const noexcept { return state_->buckets.size(); }

std::vector<GradientReducer::Bucket> GradientReducer::buckets() const {
  std::vector<Bucket> buckets;
  for (const BucketMemory& bucket : state_->buckets) {
    Bucket& told = buckets.emplace_back();
    for (const Slot& slot : bucket.slots) told.parameters.push_back(slot.parameter);
    told.bytes = bucket.bytes();
    told.dtype = bucket.wire_type;
  }
  return buckets;
}

void GradientReducer::zero_gradients() {
  for (const Parameter& parameter : state_->parameters)
    training::fill_zero(parameter.gradient.data, parameter.gradient.bytes(),
                        parameter.gradient.device, state_->options.how.stream);
}

void GradientReducer::ready(std::size_t index) {
  State& s = *state_;
  if (index >= s.parameters.size())
    throw Error{ErrorCode::invalid_argument, "ready(" + std::to_string(index) + "): there are " +
                                                 std::to_string(s.parameters.size()) +
                                                 " parameters"};
  if (s.is_ready[index] != 0)
    throw Error{ErrorCode::invalid_argument, "ready: " + named(s.parameters, {{index}}) +
                                                 " is ready for the second time in one backward"};
  s.is_ready[index] = 1;
  s.used[index] = 1;
  if (!std::exchange(s.begun, true)) s.reduces = s.syncing;
  if (!s.reduces) return;
  if (s.learns_order()) s.ready_order.push_back(index);
  s.to_wire(index);
  s.gone(index);
  s.start_complete_buckets();
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
  s.next_bucket = 0;
  s.settle_layout();
  s.end_backward();
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
  const BucketMemory& bucket = s.buckets.at(index);
  const std::size_t count = s.part(bucket);
  const std::size_t begin = static_cast<std::size_t>(s.group.rank()) * count;
  for (const Slot& place : bucket.slots) {
    const auto piece = training::overlap(place, begin, begin + count);
    training::copy(bucket.at(piece.in_bucket), s.value_at(place.parameter, piece.in_parameter),
                   piece.count * size_of(bucket.own_type), bucket.device, s.options.how.stream);
  }
  s.sharing.emplace_back(index, s.group.all_gather_async(bucket.at(begin), bucket.wire, count,
                                                         bucket.wire_type, s.options.how));
}

void GradientReducer::finish_sharing() {
  State& s = *state_;
  const auto rank = static_cast<std::size_t>(s.group.rank());
  const auto take = [&](const BucketMemory& bucket, std::size_t begin, std::size_t end) {
    for (const Slot& place : bucket.slots) {
      const auto piece = training::overlap(place, begin, end);
      training::copy(s.value_at(place.parameter, piece.in_parameter), bucket.at(piece.in_bucket),
                     piece.count * size_of(bucket.own_type), bucket.device, s.options.how.stream);
    }
  };
  try {
    for (const auto& [index, work] : s.sharing) {
      work.wait();
      const BucketMemory& bucket = s.buckets[index];
      take(bucket, 0, rank * s.part(bucket));
      take(bucket, (rank + 1) * s.part(bucket), bucket.count);
    }
  } catch (...) {
    s.drain();
    throw;
  }
  s.sharing.clear();
}

}  // namespace acc::runtime
