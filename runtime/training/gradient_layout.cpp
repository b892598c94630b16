#include "runtime/training/gradient_layout.hpp"

#include "runtime/training/cast.hpp"

#include <acc/cuda.hpp>
#include <algorithm>
#include <utility>

namespace acc::runtime::training {

GradientLayout::GradientLayout(std::vector<Parameter> parameters, ProcessGroup& group,
                               Options options)
    : group_{group}, options_{options}, parameters_{std::move(parameters)} {
  for (Parameter& parameter : parameters_) {
    const bool ours = parameter.gradient.data == nullptr;
    if (ours) parameter.gradient = parameter.value;
    if (ours) parameter.gradient.data = nullptr;
    ours_.push_back(ours ? 1 : 0);
  }
  adopt(reversed_order(parameters_.size()));
  place_uncompressed();
}

bool GradientLayout::on_host() const {
  return std::ranges::all_of(
      buckets_, [](const BucketMemory& b) { return b.device.kind == Device::Kind::cpu; });
}

std::byte* GradientLayout::gradient_at(const Slot& place, const Overlap& piece) const {
  const TensorView& gradient = parameters_[place.parameter].gradient;
  return static_cast<std::byte*>(gradient.data) + piece.in_parameter * size_of(gradient.dtype);
}

std::byte* GradientLayout::value_at(const Slot& place, const Overlap& piece) const {
  const TensorView& value = parameters_[place.parameter].value;
  return static_cast<std::byte*>(value.data) + piece.in_parameter * size_of(value.dtype);
}

// ---- layout ----

/// Gradients of ours_ that are not in wire_: they never move.
void GradientLayout::place_uncompressed() {
  constexpr std::size_t kAlignment = 64;
  const auto padded = [](std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::size_t bytes = kAlignment;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (ours_[i] != 0 && !in_place(i)) bytes += padded(parameters_[i].value.bytes());
  if (bytes == kAlignment) return;
  uncompressed_.resize(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(uncompressed_.data());
  std::byte* at = uncompressed_.data() + (padded(address) - address);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (ours_[i] == 0 || in_place(i)) continue;
    parameters_[i].gradient.data = at;
    at += padded(parameters_[i].value.bytes());
  }
}

void GradientLayout::adopt(std::vector<std::size_t> order) {
  order_ = std::move(order);
  const auto plan = plan_buckets(parameters_, order_, options_.limits);
  const std::vector<BucketMemory> old_buckets =
      std::exchange(buckets_, lay_out(parameters_, plan, options_.compression, group_.size()));
  const auto old_bucket = std::exchange(bucket_of_, std::vector<std::size_t>(parameters_.size()));
  const auto old_slot = std::exchange(slot_of_, std::vector<std::size_t>(parameters_.size()));
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t s = 0; s < buckets_[b].slots.size(); ++s) {
      bucket_of_[buckets_[b].slots[s].parameter] = b;
      slot_of_[buckets_[b].slots[s].parameter] = s;
    }
  }
  const SharedBuffer old_wire = std::exchange(wire_, allocate(buckets_, group_, options_.stream));
  move_gradients(old_buckets, old_bucket, old_slot);
  if (!on_host()) cuda::synchronize(options_.stream);  // before the old memory is freed
  cut_ranges();
}

void GradientLayout::move_gradients(std::span<const BucketMemory> from,
                                    std::span<const std::size_t> old_bucket,
                                    std::span<const std::size_t> old_slot) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!in_place(i)) continue;
    const BucketMemory& bucket = buckets_[bucket_of_[i]];
    std::byte* to = bucket.at(slot(i).offset);
    if (!from.empty()) {
      const BucketMemory& old = from[old_bucket[i]];
      copy(to, old.at(old.slots[old_slot[i]].offset), parameters_[i].value.bytes(), bucket.device,
           options_.stream);
    }
    parameters_[i].gradient.data = to;
  }
}

void GradientLayout::cut_ranges() {
  if (!options_.scattered) {
    ranges_ = whole_ranges(parameters_);
    return;
  }
  ranges_.clear();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Span mine = own_part(buckets_[b]);
    for (const Slot& place : buckets_[b].slots) {
      const Overlap piece = overlap(place, mine.begin, mine.end);
      if (piece.count > 0) ranges_.push_back({place.parameter, piece.in_parameter, piece.count, b});
    }
  }
}

// ---- onto the wire and off it ----

void GradientLayout::to_wire(std::size_t parameter) {
  if (in_place(parameter)) return;
  const BucketMemory& bucket = buckets_[bucket_of_[parameter]];
  const Slot& place = slot(parameter);
  const TensorView& gradient = parameters_[parameter].gradient;
  if (bucket.compressed()) {
    narrow(gradient.data, bucket.own_type, bucket.at(place.offset), bucket.wire_type, place.count,
           1.0 / group_.size());
  } else {
    copy(bucket.at(place.offset), gradient.data, gradient.bytes(), bucket.device, options_.stream);
  }
}

void GradientLayout::zero_on_wire(std::size_t parameter) {
  const BucketMemory& bucket = buckets_[bucket_of_[parameter]];
  const Slot& place = slot(parameter);
  fill_zero(bucket.at(place.offset), place.count * size_of(bucket.wire_type), bucket.device,
            options_.stream);
}

std::vector<std::byte> GradientLayout::contents(std::size_t parameter) const {
  if (!in_place(parameter)) return {};
  const BucketMemory& bucket = buckets_[bucket_of_[parameter]];
  const Slot& place = slot(parameter);
  std::vector<std::byte> bytes(place.count * size_of(bucket.wire_type));
  copy(bytes.data(), bucket.at(place.offset), bytes.size(), bucket.device, options_.stream);
  wait_for(bucket.device);
  return bytes;
}

void GradientLayout::put_back(std::size_t parameter, const std::vector<std::byte>& bytes) {
  const BucketMemory& bucket = buckets_[bucket_of_[parameter]];
  if (bytes.empty()) return;
  copy(bucket.at(slot(parameter).offset), bytes.data(), bytes.size(), bucket.device,
       options_.stream);
  wait_for(bucket.device);
}

/// For copies from and to memory of the host that may be freed next.
void GradientLayout::wait_for(const Device& device) const {
  if (device.kind == Device::Kind::cuda) cuda::synchronize(options_.stream);
}

void GradientLayout::from_wire(const BucketMemory& bucket, Span which,
                               std::span<const std::int32_t> used) {
  for (const Slot& place : bucket.slots) {
    const bool keeps = !used.empty() && used[place.parameter] == 0;
    if (keeps || in_place(place.parameter)) continue;
    const Overlap piece = overlap(place, which.begin, which.end);
    const std::byte* from = bucket.at(piece.in_bucket);
    std::byte* to = gradient_at(place, piece);
    if (bucket.compressed()) {
      widen(from, bucket.wire_type, to, bucket.own_type, piece.count);
    } else {
      copy(to, from, piece.count * size_of(bucket.own_type), bucket.device, options_.stream);
    }
  }
}

void GradientLayout::values_to_wire(const BucketMemory& bucket, Span which) {
  for (const Slot& place : bucket.slots) {
    const Overlap piece = overlap(place, which.begin, which.end);
    copy(bucket.at(piece.in_bucket), value_at(place, piece), piece.count * size_of(bucket.own_type),
         bucket.device, options_.stream);
  }
}

void GradientLayout::values_from_wire(const BucketMemory& bucket, Span which) {
  for (const Slot& place : bucket.slots) {
    const Overlap piece = overlap(place, which.begin, which.end);
    copy(value_at(place, piece), bucket.at(piece.in_bucket), piece.count * size_of(bucket.own_type),
         bucket.device, options_.stream);
  }
}

}  // namespace acc::runtime::training
