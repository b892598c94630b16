#pragma once

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
  std::vector<LoaderBase*> loaders;               ///< likewise
  std::vector<std::function<void()>> hooks;       ///< at the end of backward
  std::vector<StateTensor> tensors;               ///< registered
  std::vector<Text> texts;                        ///< registered
  std::optional<Checkpointer> checkpointer;       ///< made when first used, as that is collective

  bool goes_on = false;  ///< load_state() was called

  Checkpointer& checkpoints();
  void refuse_overwriting();
};

}  // namespace acc::runtime
