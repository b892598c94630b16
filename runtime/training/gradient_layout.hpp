#pragma once

#include "runtime/training/bucket_memory.hpp"
#include "runtime/training/bucket_plan.hpp"

#include <acc/gradient_reducer.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace acc::runtime::training {

/// The memory layout of the gradients of a model, and copies from and to the reduced (wire) memory.
class GradientLayout {
 public:
  struct Options {
    BucketLimits limits;
    Compression compression = Compression::none;
    bool scattered = false;  ///< ranges() are parts of buckets
    void* stream = nullptr;
  };
  /// Collective. The last parameter first, as the real order is not known yet.
  GradientLayout(std::vector<Parameter> parameters, ProcessGroup& group, Options options);
  GradientLayout(const GradientLayout&) = delete;
  GradientLayout& operator=(const GradientLayout&) = delete;

  /// Lays buckets out anew. Collective. Gradients in wire memory move with their contents.
  void adopt(std::vector<std::size_t> order);

  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const std::vector<std::size_t>& order() const noexcept { return order_; }
  [[nodiscard]] const std::vector<BucketMemory>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] const std::vector<GradientRange>& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }
  [[nodiscard]] bool on_host() const;
  /// Elements of a bucket owned by one rank.
  [[nodiscard]] std::size_t part(const BucketMemory& bucket) const {
    return bucket.count / static_cast<std::size_t>(group_.size());
  }
  /// Elements of a bucket that are this rank's.
  struct Span {
    std::size_t begin;
    std::size_t end;
  };
  [[nodiscard]] Span own_part(const BucketMemory& bucket) const {
    const std::size_t begin = static_cast<std::size_t>(group_.rank()) * part(bucket);
    return {begin, begin + part(bucket)};
  }

  /// Copies a gradient to the wire memory, unless it is there.
  void to_wire(std::size_t parameter);
  void zero_on_wire(std::size_t parameter);
  /// The contents of a gradient that is in wire memory, for put_back; else empty.
  [[nodiscard]] std::vector<std::byte> contents(std::size_t parameter) const;
  void put_back(std::size_t parameter, const std::vector<std::byte>& bytes);
  /// Copies means from the wire memory: elements `which` of a bucket, except parameters that no
  /// rank used.
  /// @param used  by parameter, 0: by no rank; empty: all were used
  void from_wire(const BucketMemory& bucket, Span which, std::span<const std::int32_t> used);

  /// Copies the values of parameters to and from the wire memory.
  void values_to_wire(const BucketMemory& bucket, Span which);
  void values_from_wire(const BucketMemory& bucket, Span which);

 private:
  [[nodiscard]] const Slot& slot(std::size_t parameter) const {
    return buckets_[bucket_of_[parameter]].slots[slot_of_[parameter]];
  }
  [[nodiscard]] bool in_place(std::size_t parameter) const {
    return ours_[parameter] != 0 && !buckets_[bucket_of_[parameter]].compressed();
  }
  [[nodiscard]] std::byte* gradient_at(const Slot& place, const Overlap& piece) const;
  [[nodiscard]] std::byte* value_at(const Slot& place, const Overlap& piece) const;
  void move_gradients(std::span<const BucketMemory> from, std::span<const std::size_t> old_bucket,
                      std::span<const std::size_t> old_slot);
  void place_uncompressed();
  void cut_ranges();
  void wait_for(const Device& device) const;

  ProcessGroup& group_;  ///< of the reducer
  Options options_;
  std::vector<Parameter> parameters_;
  std::vector<char> ours_;  ///< by parameter: its gradient was allocated here
  std::vector<std::size_t> order_;
  std::vector<BucketMemory> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<std::size_t> slot_of_;    ///< by parameter, in its bucket
  SharedBuffer wire_;
  std::vector<std::byte> uncompressed_;  ///< gradients of ours whose wire is narrower
  std::vector<GradientRange> ranges_;
};

}  // namespace acc::runtime::training
