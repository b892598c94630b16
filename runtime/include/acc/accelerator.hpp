#pragma once

#include <acc/checkpoint.hpp>
#include <acc/gradient_state.hpp>
#include <acc/loader.hpp>
#include <acc/operations.hpp>
#include <acc/process_group.hpp>
#include <acc/random.hpp>
#include <acc/split.hpp>
#include <acc/training.hpp>
#include <acc/types.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::runtime {

enum class MixedPrecision : std::uint8_t { no, fp16, bf16, fp8 };

/// Where a project keeps its files. As Accelerate's ProjectConfiguration.
struct ProjectConfiguration {
  std::filesystem::path project_dir = {};  ///< empty: none
  std::filesystem::path logging_dir = {};  ///< empty: project_dir
  /// save_state() writes project_dir/checkpoints/checkpoint_<iteration>, with increasing numbers,
  /// whatever path it is given, as Accelerate's does.
  bool automatic_checkpoint_naming = false;
  int total_limit = 0;          ///< checkpoints to keep; 0: all
  std::uint64_t iteration = 0;  ///< of the next save_state()
};

struct AcceleratorOptions {
  GroupOptions group = {};
  /// Default: ACCELERATE_MIXED_PRECISION, as acc-launch sets it, else no. fp16 enables the loss
  /// scaler; the loop chooses its own compute type.
  std::optional<MixedPrecision> mixed_precision = {};
  /// At least 1. Default: ACCELERATE_GRADIENT_ACCUMULATION_STEPS, else 1.
  std::optional<std::uint64_t> gradient_accumulation_steps = {};
  bool sync_with_dataloader = true;  ///< the last batch of an epoch ends a step
  bool sync_each_batch = false;
  LossScalerOptions scaler = {};
  ProjectConfiguration project = {};
  bool async_checkpoints = false;  ///< save_state() copies and returns; a thread writes
};

struct LoadStateOptions {
  /// Accept a checkpoint with state that nothing here loads, of an unprepared optimizer for
  /// example. Otherwise that is an error, and nothing is changed.
  bool allow_unused = false;
};

/// Turns a training loop for one process into one for many: rank facts, synchronisation, gathering,
/// accumulation, checkpoints. As Hugging Face's Accelerator, for loops in C++.
///
///   acc::Accelerator accelerator;
///   auto& reducer = accelerator.prepare_model(model.parameters());
///   acc::AdamW optimizer{reducer, {.learning_rate = 1e-3}};
///   accelerator.prepare(optimizer);
///   auto loader = accelerator.data_loader(dataset, {.batch_size = 32, .shuffle = true});
///   for (auto& batch : loader) {
///     auto accumulating = accelerator.accumulate();
///     accelerator.backward([&](double factor) { model.backward(batch, reducer, factor); });
///     if (accelerator.sync_gradients()) accelerator.clip_grad_norm(optimizer, 1.0);
///     accelerator.step(optimizer);
///     accelerator.step(scheduler);  // if there is one
///     accelerator.zero_grad(optimizer);
///   }
///
/// Everything that moves data or waits is collective: every rank calls it, in the same order. One
/// thread at a time. @throws Error from all of it, as the group's operations do; invalid_argument
/// after a move.
class Accelerator {
 public:
  /// Forms the group of the job from the environment.
  explicit Accelerator(AcceleratorOptions options = {});
  /// Uses an existing group; options.group is ignored.
  explicit Accelerator(ProcessGroup group, AcceleratorOptions options = {});
  Accelerator(Accelerator&&) noexcept;
  Accelerator& operator=(Accelerator&&) noexcept;
  ~Accelerator();

  // ---- who am I ----
  [[nodiscard]] int process_index() const;
  [[nodiscard]] int local_process_index() const;  ///< on this node
  [[nodiscard]] int num_processes() const;
  [[nodiscard]] bool is_main_process() const { return process_index() == 0; }
  [[nodiscard]] bool is_local_main_process() const { return local_process_index() == 0; }
  [[nodiscard]] bool is_last_process() const { return process_index() == num_processes() - 1; }
  [[nodiscard]] bool use_distributed() const { return num_processes() > 1; }
  /// The device of this process: a CUDA device if the backend is nccl, which is then current in the
  /// thread that made the accelerator.
  [[nodiscard]] Device device() const;
  [[nodiscard]] MixedPrecision mixed_precision() const;
  [[nodiscard]] ProcessGroup& group() const;

  // ---- in turn, and only some ----
  void wait_for_everyone();

  /// Scope in which one rank goes first; the others wait until it ends, also by an exception.
  class [[nodiscard]] Turn {
   public:
    Turn(Turn&& other) noexcept
        : is_local_{other.is_local_}, group_{std::exchange(other.group_, nullptr)} {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    friend class Accelerator;
    Turn(ProcessGroup& group, bool goes_first, bool is_local);
    bool is_local_ = false;
    ProcessGroup* group_;  ///< of the accelerator, which outlives this; nullptr: not the first
  };
  /// The scope is run by the main process, then by the others: { auto turn =
  /// accelerator.main_process_first(); load_or_download(); }
  Turn main_process_first();
  Turn local_main_process_first();  ///< likewise on each node
  template <class F>
  decltype(auto) main_process_first(F&& work) {
    const Turn turn = main_process_first();
    return std::forward<F>(work)();
  }
  template <class F>
  decltype(auto) local_main_process_first(F&& work) {
    const Turn turn = local_main_process_first();
    return std::forward<F>(work)();
  }

  /// These do not wait. @return true: called on this rank
  template <class F>
  bool on_main_process(F&& work) {
    return only_if(is_main_process(), std::forward<F>(work));
  }
  template <class F>
  bool on_local_main_process(F&& work) {
    return only_if(is_local_main_process(), std::forward<F>(work));
  }
  template <class F>
  bool on_last_process(F&& work) {
    return only_if(is_last_process(), std::forward<F>(work));
  }
  template <class F>
  bool on_process(int index, F&& work) {
    return only_if(process_index() == index, std::forward<F>(work));
  }
  template <class F>
  bool on_local_process(int index, F&& work) {
    return only_if(local_process_index() == index, std::forward<F>(work));
  }

  /// One line on stdout, by the main process of each node: print("loss ", loss).
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (!is_local_main_process()) return;
    std::ostringstream line;
    (line << ... << parts) << '\n';
    print_line(line.str());
  }

  // ---- tensors and lists ----
  /// This rank's part of what all ranks have: a vector, a tensor, or a map of them.
  template <class T>
  [[nodiscard]] auto split_between_processes(const T& whole, bool apply_padding = false) const {
    return runtime::split_between_processes(group(), whole, apply_padding);
  }
  /// The tensors of all ranks, concatenated along the first dimension.
  [[nodiscard]] HostTensor gather(const ConstTensorView& mine);
  [[nodiscard]] std::vector<HostTensor> gather(std::span<const TensorView> mine);
  [[nodiscard]] std::vector<std::string> gather_object(std::span<const std::string> mine);
  /// As gather, without the duplicates that pad the last batch of a loader to equally many samples
  /// per rank. For data_loader() below, or loaders with this accelerator's gradient_state().
  [[nodiscard]] HostTensor gather_for_metrics(const ConstTensorView& mine);
  [[nodiscard]] std::vector<HostTensor> gather_for_metrics(std::span<const TensorView> mine);
  [[nodiscard]] std::vector<std::string> gather_for_metrics(std::span<const std::string> mine);
  [[nodiscard]] HostTensor pad_across_processes(const ConstTensorView& mine, int dim = 0,
                                                double pad_index = 0, bool pad_first = false);
  [[nodiscard]] HostTensor reduce(const ConstTensorView& mine, Reduction how = Reduction::sum);

  /// A flag that any rank may set; all see it at their next check, which clears it.
  void set_trigger();
  [[nodiscard]] bool check_trigger();

  // ---- the loop ----
  /// Averages gradients over the ranks. The reducer is owned by the accelerator and not moved; its
  /// parameters and buffers are part of save_state().
  GradientReducer& prepare_model(std::vector<Parameter> parameters, ReducerOptions options = {});
  /// Its state becomes part of save_state(). It must outlive the accelerator's last use, and not be
  /// moved. Collective. @throws Error  mismatch: the ranks have different settings;
  /// invalid_argument: twice
  void prepare(Optimizer& optimizer);
  /// Likewise, with how step(scheduler) steps it.
  void prepare(Scheduler& scheduler, SchedulerOptions options = {});
  /// Its position is a part of save_state(); likewise. accumulate() and gather_for_metrics() follow
  /// it from now on. Collective. @throws Error  mismatch: the ranks have different loaders, so that
  /// samples would be missing or come twice
  void prepare(LoaderBase& loader);
  /// Shards the samples over the ranks, and tells accumulate() and gather_for_metrics() where it
  /// is. To save its position, prepare() it.
  template <class Sample>
  [[nodiscard]] DataLoader<Sample> data_loader(Dataset<Sample> dataset, LoaderOptions options) {
    options.gradient_state = gradient_state();
    return DataLoader<Sample>{std::move(dataset), std::move(options), group()};
  }
  template <class Sample>
  [[nodiscard]] DataLoader<Sample> data_loader(StreamDataset<Sample> dataset,
                                               LoaderOptions options) {
    options.gradient_state = gradient_state();
    return DataLoader<Sample>{std::move(dataset), std::move(options), group()};
  }
  [[nodiscard]] std::shared_ptr<GradientState> gradient_state() const;
  /// Forgets everything prepared and registered, for a loop that rebuilds its model, and counts the
  /// batches of a step from 0, as Accelerate's free_memory(). Invalidates references to reducers.
  void clear();

  /// Scope of one batch, in which gradients are averaged only if the batch ends a step. For these
  /// reducers, or all prepared ones.
  class [[nodiscard]] Accumulation {
   public:
    Accumulation(Accumulation&&) noexcept = default;

   private:
    friend class Accelerator;
    Accumulation() = default;
    std::vector<GradientReducer::NoSync> quiet_;
  };
  Accumulation accumulate();
  Accumulation accumulate(std::span<GradientReducer* const> reducers);
  GradientReducer::NoSync no_sync(GradientReducer& reducer);  ///< scope of only accumulating
  /// Does this batch end a step, with complete gradients and an optimizer step?
  [[nodiscard]] bool sync_gradients() const;
  [[nodiscard]] std::uint64_t gradient_accumulation_steps() const;

  /// Factor for the gradient of the loss: the loss scale divided by the batches of a step.
  [[nodiscard]] double backward_factor() const;
  /// Runs begin_backward(), then `pass(factor)`, which adds to the gradients and calls ready() of
  /// the reducers, then end_backward(). Before a step there may be several of them.
  template <class F>
  void backward(F&& pass) {
    begin_backward();
    std::forward<F>(pass)(backward_factor());
    end_backward();
  }
  void begin_backward();  ///< GradientReducer::gather_means() of all prepared reducers
  /// Waits until all prepared reducers are done, then calls the functions given to
  /// on_backward_end().
  void end_backward();
  void on_backward_end(std::function<void()> hook);
  /// After a pass that all ranks abandoned, in it or before backward(): undoes it in all prepared
  /// reducers. Gradients are zero then, including those accumulated before in this step; continue
  /// with the next batch. Collective. Call zero_grad() before the pass on all ranks or on none.
  void cancel_backward();

  /// With a loss scale, gradients are divided by it first. Of a batch that ends a step. Where the
  /// norm isn't finite call step() all the same: it leaves the step out and lowers the scale.
  /// @throws Error invalid_argument, also below: as LossScaler::unscale(), with parameters of f16.
  ClippedNorm clip_grad_norm(Optimizer& optimizer, double max_norm, Norm norm = Norm::l2);
  void clip_grad_value(Optimizer& optimizer, double limit);
  /// No effect the second time before a step, or without a loss scale.
  void unscale_gradients(Optimizer& optimizer);
  /// Steps if this batch ends a step and the gradients are finite, and updates the loss scale. With
  /// several optimizers and a loss scale, use scaler() by hand. @return true: it stepped
  bool step(Optimizer& optimizer);
  /// After the optimizer's step: sets the rates of the next one. As Accelerate's: not while
  /// gradients are accumulated, nor after a step that was skipped; as many steps at once as there
  /// are ranks, unless batches are split (SchedulerOptions).
  void step(Scheduler& scheduler);
  void zero_grad(Optimizer& optimizer);  ///< if this batch ended a step
  /// Was the last step() left out because of an infinite or NaN gradient?
  [[nodiscard]] bool optimizer_step_was_skipped() const;
  [[nodiscard]] LossScaler& scaler();

  // ---- random numbers ----
  /// Seeds generator(): Generator{seed, 0} on every rank; with `device_specific` Generator{seed,
  /// rank + 1}, so that each rank draws numbers of its own.
  void set_seed(std::uint64_t seed, bool device_specific = false);
  [[nodiscard]] Generator& generator();  ///< part of save_state(), for each rank

  // ---- checkpoints ----
  /// A tensor equal on all ranks, or of which each holds a piece; the same names on all (mismatch).
  void register_for_checkpointing(std::string name, const TensorView& tensor,
                                  Placement placement = Placement::replicated);
  enum class Owner : std::uint8_t { shared, each_rank };
  /// Anything else, as text (JSON, for example). `load` gets what `save` gave: shared: on rank 0;
  /// each_rank: on this rank, and isn't called where the checkpoint has none for it.
  void register_for_checkpointing(std::string name, std::function<std::string()> save,
                                  std::function<void(std::string_view text)> load,
                                  Owner owner = Owner::shared);
  /// Writes all that was prepared and registered: to `path`, or with automatic naming to
  /// project_dir/checkpoints/checkpoint_<iteration>, and the oldest beyond total_limit go. In the
  /// middle of an accumulated step each rank's sums of gradients are a part of it.
  /// @return the folder; with async_checkpoints it is complete after wait_for_checkpoint().
  /// @throws Error  on all ranks, also what a registered function threw on one; invalid_argument:
  ///   during a backward (before its step(): a warning); the folder has another run's checkpoints,
  ///   or another wrote there since load_state(); `path` has files that aren't a checkpoint's
  std::filesystem::path save_state(const std::filesystem::path& path = {});
  /// From `path`, or with automatic naming the newest that is whole. After all was prepared and
  /// before the first batch; a zero_grad() between them leaves the gradients of an accumulated
  /// step. Learning rates are those of the checkpoint, as in torch. The number of the next
  /// save_state() is above all that are there.
  /// @return its folder; empty: with automatic naming there is none yet.
  /// @throws Error  on all ranks; invalid_argument: a part is missing, or there is one that nothing
  ///   here takes; system: a file can't be read; corrupt: there are some, and none is whole
  std::filesystem::path load_state(const std::filesystem::path& path = {},
                                   LoadStateOptions options = {});
  void wait_for_checkpoint();

  // ---- models ----
  /// Writes the parameters and buffers of the prepared model as Hugging Face's models are stored:
  /// model.safetensors or, above `max_shard_size` ("10GB", "500MiB", or a number of bytes),
  /// model-00001-of-00002.safetensors … and model.safetensors.index.json. By the main process;
  /// collective. What a crash leaves is the old model or the new one, never a mixture.
  /// @return the files' names, the index last. @throws Error invalid_argument: it is a checkpoint
  std::vector<std::string> save_model(const std::filesystem::path& folder,
                                      std::string_view max_shard_size = "10GB");
  std::vector<std::string> save_model(const GradientReducer& model,
                                      const std::filesystem::path& folder,
                                      std::string_view max_shard_size = "10GB");
  /// Fills the prepared model from such a folder or file, which the main process reads and gives to
  /// all; master copies of prepared optimizers follow. Collective.
  /// @throws Error  on all ranks; invalid_argument: a tensor is missing, of another type or shape,
  ///   or there is one that isn't the model's
  void load_model(const std::filesystem::path& path);
  void load_model(const GradientReducer& model, const std::filesystem::path& path);

  // ---- project ----
  [[nodiscard]] const std::filesystem::path& project_dir() const;
  [[nodiscard]] const std::filesystem::path& logging_dir() const;
  [[nodiscard]] std::uint64_t save_iteration() const;

 private:
  struct State;
  template <class F>
  static bool only_if(bool mine, F&& work) {
    if (mine) std::forward<F>(work)();
    return mine;
  }
  void print_line(const std::string& line) const;
  [[nodiscard]] State& state() const;
  std::unique_ptr<State> state_;  ///< nullptr: moved from
};

}  // namespace acc::runtime

namespace acc {
using runtime::Accelerator;
using runtime::AcceleratorOptions;
using runtime::LoadStateOptions;
using runtime::MixedPrecision;
using runtime::ProjectConfiguration;
}  // namespace acc
