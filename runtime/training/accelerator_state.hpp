#pragma once

#include "runtime/training/accumulated_gradients.hpp"

#include <acc/accelerator.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime {

struct Accelerator::State {
  /// What was registered as text.
  struct Text {
    std::string name;
    std::function<std::string()> save;
    std::function<void(std::string_view)> load;
    Owner owner;
  };

  struct PreparedScheduler {
    Scheduler* scheduler;  ///< the loop's; outlives the accelerator's use
    SchedulerOptions options;
  };

  State(ProcessGroup its_group, AcceleratorOptions its_options);

  ProcessGroup group;
  AcceleratorOptions options;
  MixedPrecision precision;
  std::shared_ptr<GradientState> gradient_state;
  LossScaler scaler;
  Generator generator;
  Trigger trigger;
  std::deque<GradientReducer> reducers;           ///< a deque: their addresses stay
  std::vector<std::vector<ModelBuffer>> buffers;  ///< of the reducers
  std::vector<Optimizer*> optimizers;             ///< the loop's; outlive the accelerator's use
  std::vector<PreparedScheduler> schedulers;
  std::vector<LoaderBase*> loaders;          ///< the loop's, likewise
  std::vector<std::function<void()>> hooks;  ///< at the end of backward
  std::vector<StateTensor> tensors;          ///< registered
  std::vector<Text> texts;                   ///< registered
  std::optional<Checkpointer> checkpointer;  ///< made when first used, as that is collective

  bool goes_on = false;         ///< load_state() was called
  bool told_unapplied = false;  ///< on rank 0

  // ---- what is prepared ----
  [[nodiscard]] const PreparedScheduler* find(const Scheduler& scheduler) const;
  [[nodiscard]] bool splits_batches(const SchedulerOptions& options) const;
  void refuse_shared_memory(const std::vector<Parameter>& parameters) const;
  /// @throws Error invalid_argument: not a prepared one
  [[nodiscard]] const std::vector<ModelBuffer>& buffers_of(const GradientReducer& model) const;
  /// @throws Error invalid_argument: something is registered under it
  void require_new_name(const std::string& name) const;
  /// The only one. @throws Error invalid_argument: none, or several
  [[nodiscard]] GradientReducer& only_model(const char* what);
  void gather_means();  ///< of all reducers
  void clear();         ///< all that is prepared or registered

  // ---- checkpoints: what goes into them ----
  Checkpointer& checkpoints();
  void refuse_overwriting();
  void require_same_registered();
  [[nodiscard]] CheckpointState what_to_save();
  /// Collective: what_to_save() on all ranks, or the error of one of them; have all registered the
  /// same? Without it a checkpoint lacks what only some have, which is missed when it is needed.
  /// @throws Error mismatch on all ranks, with what two of them have.
  [[nodiscard]] CheckpointState agree_what_to_save();
  /// For load_state: the state to request, and applying the result.
  [[nodiscard]] CheckpointState what_to_load();
  /// Reads what fill() doesn't.
  [[nodiscard]] training::SavedGradients gradients_in(const Restored& found) const;
  /// No file is needed for it any more.
  void take(const Restored& found, training::SavedGradients gradients);
  [[nodiscard]] std::vector<std::string> not_taken(const Checkpoint& checkpoint,
                                                   const CheckpointState& wanted) const;
  /// Calls `work` on all ranks; what it throws on one is thrown on all: unchanged there, elsewhere
  /// as an Error with its text. Collective.
  void together(const char* operation, const std::function<void()>& work);

 private:
  /// Warns once: a loop that goes on from a checkpoint begins with the next batch, so that means
  /// which were not applied yet are lost. No refusal, as a loop may have left out the step on
  /// purpose (a norm that isn't finite, the other network's gradients in a GAN).
  void tell_unapplied();
  void add_tensors(CheckpointState& state);
  void add_gradients(CheckpointState& state);
  void add_texts(CheckpointState& state);
  void take_texts(const Restored& found);
  void take_gradients(const Restored& found, training::SavedGradients gradients);
};

}  // namespace acc::runtime
