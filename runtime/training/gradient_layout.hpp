#pragma once

#include "runtime/training/bucket_memory.hpp"
#include "runtime/training/bucket_plan.hpp"

#include <acc/gradient_reducer.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace acc::runtime::training {

/// Where the gradients of a model lie, and the way between them and the memory that travels.
class GradientLayout {
 public:
  struct Options {
    BucketLimits limits;
    Compression compression = Compression::none;
    bool scattered = false;  ///< ranges() are parts of buckets
    void* stream = nullptr;
  };
  /// Collective. The last parameter first, as nobody knows better yet.
  GradientLayout(std::vector<Parameter> parameters, ProcessGroup& group, Options options);
  GradientLayout(const GradientLayout&) = delete;
  GradientLayout& operator=(const GradientLayout&) = delete;

  /// Lays buckets out anew. Collective. Gradients that lie on the wire move, with what they hold.
  void adopt(std::vector<std::size_t> order);

  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const std::vector<std::size_t>& order() const noexcept { return order_; }
  [[nodiscard]] const std::vector<BucketMemory>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] const std::vector<GradientRange>& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }
  [[nodiscard]] bool on_host() const;
  /// Elements of a bucket that one rank answers for.
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

  /// A gradient onto the wire; nothing to do where it lies there.
  void to_wire(std::size_t parameter);
  /// What a parameter that isn't used here adds to the sum. @return what was there, if its gradient
  /// lies on the wire, for put_back.
  [[nodiscard]] std::vector<std::byte> zero_on_wire(std::size_t parameter);
  void put_back(std::size_t parameter, const std::vector<std::byte>& bytes);
  /// Means off the wire: elements `which` of a bucket, but not those of parameters that nobody
  /// used.
  /// @param used  by parameter, 0: by nobody; empty: all were used
  void from_wire(const BucketMemory& bucket, Span which, std::span<const std::int32_t> used);

  /// The values of parameters, onto and off the wire.
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

  ProcessGroup& group_;  ///< of the reducer that this is a part of
  Options options_;
  std::vector<Parameter> parameters_;
  std::vector<char> ours_;  ///< by parameter: we found the place for its gradient
  std::vector<std::size_t> order_;
  std::vector<BucketMemory> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<std::size_t> slot_of_;    ///< by parameter, in its bucket
  SharedBuffer wire_;
  std::vector<std::byte> uncompressed_;  ///< gradients of ours whose wire is narrower
  std::vector<GradientRange> ranges_;
};

}  // namespace acc::runtime::training
