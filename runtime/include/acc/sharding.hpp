#pragma once

#include <acc/sampler.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

/// Which samples go to which rank, by the rules of Accelerate's data loaders.
///
/// In each step the ranks together take the next `global` samples: rank r the r-th `batch` of them.
/// What is left at the end makes one more step: filled up with the samples that the epoch began
/// with (even), shared as far as it goes, so that some ranks get a smaller batch or none
/// (!even_batches), or dropped (drop_last).
namespace acc::runtime {

struct BatchRules {
  std::size_t batch_size = 1;  ///< of each rank; with split_batches of all ranks together
  bool drop_last = false;
  bool split_batches = false;
  bool even_batches = true;  ///< streams, and dispatching, are always even
};

/// The sizes that follow from the rules.
struct StepShape {
  std::size_t batch = 1;   ///< samples of one rank in a step
  std::size_t global = 1;  ///< samples of all ranks in a step
};
/// @throws Error invalid_argument: batch_size is 0, or is split and not a multiple of the ranks.
[[nodiscard]] StepShape step_shape(const BatchRules& rules, int ranks);

/// Batches of indices in one process.
class BatchSampler {
 public:
  /// @throws Error invalid_argument  batch_size is 0
  BatchSampler(IndexOrder order, std::size_t batch_size, bool drop_last = false);
  [[nodiscard]] std::size_t size() const noexcept;  ///< batches
  [[nodiscard]] std::vector<std::size_t> operator[](std::size_t batch) const;

 private:
  IndexOrder order_;
  std::size_t batch_size_;
  bool drop_last_;
};

/// One rank's batches of indices; any of them at once, so that an epoch can be entered anywhere.
class BatchSamplerShard {
 public:
  /// @param from  samples of the epoch that were already taken (by all ranks together, however many
  ///   they were). What is filled up at the end still comes from the epoch's beginning.
  /// @throws Error invalid_argument  see step_shape
  BatchSamplerShard(IndexOrder order, const BatchRules& rules, int rank, int ranks,
                    std::size_t from = 0);
  [[nodiscard]] std::size_t size() const noexcept;  ///< batches of this rank
  [[nodiscard]] std::vector<std::size_t> operator[](std::size_t batch) const;
  [[nodiscard]] const StepShape& shape() const noexcept { return shape_; }
  /// Samples that the last step has over all ranks when it isn't full; 0: it is, or there is none.
  [[nodiscard]] std::size_t remainder() const noexcept;
  /// What `len()` of the original says: size(), but with split_batches and without even_batches it
  /// also counts a last batch in which this rank has no share.
  [[nodiscard]] std::size_t announced() const noexcept;

 private:
  IndexOrder order_;
  BatchRules rules_;
  StepShape shape_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t from_;
};

/// Samples one after the other; nothing at the end. Not called again after that.
template <class Sample>
using Stream = std::function<std::optional<Sample>()>;

/// What `len()` of the original says of one rank's share of a stream of `samples`. It is rounded as
/// if batches were never split, so it may be more or less than what comes.
[[nodiscard]] std::size_t announced_of_stream(std::size_t samples, const BatchRules& rules,
                                              int ranks);

/// One rank's share of a stream that every rank reads as a whole. It comes in whole batches.
template <class Sample>
class IterableDatasetShard {
 public:
  /// @param from  samples to pass over, as in BatchSamplerShard; they are read all the same
  /// @throws Error invalid_argument  see step_shape
  IterableDatasetShard(Stream<Sample> whole, const BatchRules& rules, int rank, int ranks,
                       std::size_t from = 0)
      : whole_{std::move(whole)},
        shape_{step_shape(rules, ranks)},
        fills_{!rules.drop_last},
        begin_{static_cast<std::size_t>(rank) * shape_.batch},
        at_{shape_.batch},
        from_{from} {}

  std::optional<Sample> next() {
    if (at_ == shape_.batch && !read_step()) return std::nullopt;
    return std::move(share_[at_++]);
  }
  [[nodiscard]] const StepShape& shape() const noexcept { return shape_; }

 private:
  std::optional<Sample> read() {
    auto sample = whole_();
    if (sample && fills_ && first_.size() < shape_.global) first_.push_back(*sample);
    if (!sample) ended_ = true;
    return sample;
  }
  /// All ranks know only at its end whether a step is full.
  bool read_step() {
    for (; from_ > 0 && !ended_; --from_) (void)read();
    share_.clear();
    std::size_t seen = 0;
    for (; seen < shape_.global && !ended_; ++seen) {
      auto sample = read();
      if (!sample) break;
      keep(seen, std::move(*sample));
    }
    if (seen == 0 || (seen < shape_.global && !fills_)) return false;
    for (std::size_t filled = 0; seen < shape_.global; ++seen, ++filled)
      keep(seen, first_[filled % first_.size()]);
    at_ = 0;
    return true;
  }
  template <class Value>
  void keep(std::size_t place, Value&& sample) {
    if (place >= begin_ && place < begin_ + shape_.batch)
      share_.push_back(std::forward<Value>(sample));
  }

  Stream<Sample> whole_;
  StepShape shape_;
  bool fills_;
  std::size_t begin_;  ///< of this rank's share in a step
  std::vector<Sample> share_;
  std::size_t at_;  ///< in share_
  std::size_t from_;
  std::vector<Sample> first_;  ///< what the stream began with: a step at most
  bool ended_ = false;
};

/// How a step that rank 0 read for all is shared out: to each rank so many samples, in their order,
/// the last ranks' filled up with those that the epoch began with, as few as will do.
/// @param samples  of the step; only the last of an epoch may have less than all
[[nodiscard]] constexpr std::size_t dispatched_batch(std::size_t samples, int ranks) noexcept {
  return (samples + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
}

/// What `len()` of the original's dispatching loader says.
[[nodiscard]] std::size_t announced_of_dispatch(std::size_t samples, const BatchRules& rules,
                                                int ranks);

}  // namespace acc::runtime

namespace acc {
using runtime::BatchRules;
using runtime::BatchSampler;
using runtime::BatchSamplerShard;
using runtime::IterableDatasetShard;
using runtime::Stream;
}  // namespace acc
