#pragma once

#include <acc/detail/cxx20.hpp>
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

namespace acc::runtime {

/// Position of a loader in its epoch; changes while it is iterated over.
struct LoaderStatus {
  bool end_of_dataloader = false;  ///< the current batch is the last one
  /// How many samples of the last step, over all ranks, are there for the first time; 0: the step
  /// is full, -1: not known, or nothing is there twice.
  std::int64_t remainder = -1;
  friend bool operator==(const LoaderStatus&, const LoaderStatus&) = default;
};

/// When gradients are exchanged: every `steps` batches, and with the last one of an epoch. As
/// Accelerate's GradientState; one a process, shared by its loaders and the loop.
class GradientState {
 public:
  /// @param steps  batches that make one step of the optimizer; 0 counts as 1
  /// @param sync_with_dataloader  the last batch of an epoch ends a step however few came before
  /// it,
  ///   and the next epoch begins to count anew
  /// @param sync_each_batch  exchange in every batch all the same: costs time, saves the memory in
  ///   which gradients are accumulated where they are sharded
  explicit GradientState(std::uint64_t steps = 1, bool sync_with_dataloader = true,
                         bool sync_each_batch = false)
      : steps_{std::max<std::uint64_t>(steps, 1)},
        with_dataloader_{sync_with_dataloader},
        each_batch_{sync_each_batch} {}

  /// Once for each batch, before its forward pass. @return sync_gradients().
  bool next_batch() noexcept {
    note_training();
    if (with_dataloader_ && end_of_dataloader()) {
      batches_ = 0;
      sync_ = true;
    } else {
      ++batches_;
      sync_ = batches_ % steps_ == 0;
    }
    return sync_;
  }
  /// Does the optimizer step after this batch?
  [[nodiscard]] bool sync_gradients() const noexcept { return sync_; }
  /// Are gradients exchanged in this batch?
  [[nodiscard]] bool exchange() const noexcept { return sync_ || each_batch_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_; }
  /// For a restart: a former value of batches().
  void restore(std::uint64_t batches) noexcept {
    batches_ = batches;
    sync_ = batches_ % steps_ == 0;
  }

  /// A batch is trained with: next_batch(), or a backward pass of a loop that doesn't call it.
  void note_training() noexcept { ++trainings_; }
  /// So many calls of note_training().
  [[nodiscard]] std::uint64_t trainings() const noexcept { return trainings_; }

  // -- the loader that is being iterated over: the innermost, as one loop may stand in another --
  void enter(std::shared_ptr<const LoaderStatus> loader) { loaders_.push_back(std::move(loader)); }
  void leave(const std::shared_ptr<const LoaderStatus>& loader) noexcept {
    const auto last = std::find(loaders_.rbegin(), loaders_.rend(), loader);
    if (last != loaders_.rend()) loaders_.erase(std::next(last).base());
  }
  [[nodiscard]] bool in_dataloader() const noexcept { return !loaders_.empty(); }
  [[nodiscard]] bool end_of_dataloader() const noexcept {
    return !loaders_.empty() && loaders_.back()->end_of_dataloader;
  }
  [[nodiscard]] std::int64_t remainder() const noexcept {
    return loaders_.empty() ? -1 : loaders_.back()->remainder;
  }

 private:
  std::uint64_t steps_;
  bool with_dataloader_;
  bool each_batch_;
  std::uint64_t batches_ = 0;
  std::uint64_t trainings_ = 0;
  bool sync_ = true;
  std::vector<std::shared_ptr<const LoaderStatus>> loaders_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::GradientState;
}  // namespace acc
