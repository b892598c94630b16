#pragma once

#include <acc/parameter.hpp>
#include <acc/process_group.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::runtime {

/// Type in which gradients are sent. The cast to 16 bits divides by the number of ranks first, so
/// that sums can't overflow where the mean doesn't; as torch's compression hooks.
enum class Compression : std::uint8_t { none, fp16, bf16 };

enum class GradientMode : std::uint8_t {
  all_reduce,      ///< every rank gets every mean gradient
  reduce_scatter,  ///< every rank gets its 1/n of the mean gradients: for sharded optimizer state
};

struct ReducerOptions {
  std::size_t bucket_bytes = 25 * 1024 * 1024;
  std::size_t first_bucket_bytes = 1024 * 1024;  ///< small, so that communication starts early
  GradientMode mode = GradientMode::all_reduce;
  Compression compression = Compression::none;  ///< of f32 and f64; host memory, all_reduce only
  /// Parameters without a gradient in a backward are treated as unused, not as an error.
  bool find_unused_parameters = false;
  /// The same parameters are used in every backward, in the same order.
  bool static_graph = false;
  std::vector<ModelBuffer> buffers =
      {};                ///< broadcast from rank 0 at the start, like the parameters
  CallOptions how = {};  ///< for every collective
};

/// Averages gradients over the ranks while the backward pass is still running: parameters lie in
/// buckets, and a bucket's reduction starts when its last gradient is ready. As torch's
/// DistributedDataParallel, for loops without autograd.
///
///   GradientReducer reducer{group, parameters};     // collective; rank 0's values go to all
///   reducer.zero_gradients();
///   … backward adds to reducer.gradient(i), then calls reducer.ready(i) …
///   reducer.finish();                               // gradient(i) holds the mean
///
/// The mean is the group's `avg`: the sum in the order of the ranks divided by n, f16 and bf16 in
/// float with one rounding at the end, so that it depends neither on buckets nor on timing, and n
/// ranks give the bits of one rank that adds up the same n gradients in that order and divides.
///
/// Every rank calls the same methods in the same order; `ready` may come in any order, as buckets
/// are reduced in the order of their index, the same everywhere. One thread at a time.
class GradientReducer {
 public:
  /// Compares names, types and shapes over the ranks, then takes rank 0's values. Parameters
  /// without memory for a gradient get it from the group: registered memory that is reduced in
  /// place. Those with memory of their own are copied in and out.
  /// @throws Error  mismatch naming the parameter and both shapes; invalid_argument.
  GradientReducer(ProcessGroup group, std::vector<Parameter> parameters,
                  ReducerOptions options = {});
  /// One that was moved from may only be destroyed or assigned to.
  GradientReducer(GradientReducer&&) noexcept;
  GradientReducer& operator=(GradientReducer&&) noexcept;
  /// During a backward it aborts the group, as the peers would wait in vain.
  ~GradientReducer();

  /// Parameters as they are now. The gradients that have their memory from here may move once, in
  /// the finish() of the first reduced backward, when buckets are laid out anew in the order in
  /// which gradients became ready on rank 0: don't keep pointers across that.
  [[nodiscard]] std::span<const Parameter> parameters() const noexcept;
  [[nodiscard]] const TensorView& gradient(std::size_t index) const;
  /// false: backwards since zero_gradients() were reduced, and no rank used it in any of them
  /// (find_unused_parameters). It is what grad is None in torch, and optimizers leave the parameter
  /// alone. Zeros that the program writes itself don't count.
  [[nodiscard]] bool has_gradient(std::size_t index) const;
  /// The ranges whose mean this rank holds after finish().
  [[nodiscard]] std::span<const GradientRange> ranges() const noexcept;

  /// After restore_gradients(), until the next backward, it puts those back: a loop that begins
  /// with zeros doesn't lose them. On all ranks alike, though it isn't collective: it ends the
  /// step, which decides what the next backward does together. Where gradients are scattered that
  /// is a mismatch, or without GroupOptions::check a hang, if a rank calls it alone.
  /// @throws Error  invalid_argument: in the middle of a backward
  void zero_gradients();

  /// The gradient of this parameter is complete for this backward, and must not be accessed until
  /// finish(). Starts the reductions that can start; doesn't wait.
  /// @throws Error  invalid_argument: twice in one backward, or no such parameter.
  void ready(std::size_t index);

  /// Ends the backward: waits for the reductions. As with torch's find_unused_parameters, a
  /// parameter that no rank used since the last reduction keeps its gradient; one that others used
  /// gets the mean, with the mean of a backward before it in this step, or zeros, from here. A mean
  /// that means_taken() ended isn't sent again, other than in torch: so loops that overwrite
  /// gradients need no zero_gradients().
  /// @throws Error  mismatch: parameters without gradient that aren't known as unused, by name;
  ///   the group is aborted then, as the peers would wait for them. Else what a reduction failed
  ///   with.
  void finish();

  /// Undoes a backward that all ranks abandoned: an unreadable batch, lack of memory. Some may not
  /// have begun it, nor called the gather_means() before it. All gradients are zero afterwards,
  /// including those accumulated before in this step. Collective; a rank that calls finish()
  /// instead meets a mismatch with its next call.
  void cancel();

  /// Scope in which backwards only accumulate; the next one after it reduces the sum.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(GradientReducer& reducer);
    NoSync(NoSync&& other) noexcept : reducer_{std::exchange(other.reducer_, nullptr)} {}
    NoSync& operator=(NoSync&&) = delete;
    ~NoSync();

   private:
    GradientReducer* reducer_;
  };
  NoSync no_sync() { return NoSync{*this}; }
  [[nodiscard]] bool syncing() const noexcept;
  [[nodiscard]] bool in_backward() const noexcept;  ///< was ready() called since the last finish()?

  /// @throws Error  invalid_argument "step in the middle of a backward: …"
  void require_between_backwards(std::string_view what) const;

  // -- During an accumulated step each rank holds its own sum, which a checkpoint has to contain.
  // Accelerator::save_state() does all of this. --
  /// Was there a backward since the last reduction that wasn't reduced?
  [[nodiscard]] bool accumulating() const noexcept;
  /// Number of the means that the gradients hold, counted from 1; 0: they hold none, but zeros or
  /// sums. An optimizer that hasn't stepped with this number yet has something left to apply.
  [[nodiscard]] std::uint64_t means() const noexcept;
  /// For each parameter whether it got a gradient since the last reduction: '1'; before it, from
  /// any rank, since zero_gradients(): '2', or '3' if a step has applied it; else '0'.
  [[nodiscard]] std::string used() const;
  /// Continues with these sums, one for each parameter; none: all zero. Call it before the next
  /// backward.
  /// @throws Error  invalid_argument: those of another model; in the middle of a backward
  void restore_gradients(std::vector<HostTensor> gradients, std::string_view used,
                         bool accumulating = true);

  // -- reduce_scatter: several reduced backwards in one step. Only the last is scattered, as parts
  // of means can't be averaged again: the first step tells how many it has, and gives every rank
  // the whole means. So gradients have the bits of all_reduce. A step ends with zero_gradients(), a
  // step of the optimizer or finish_sharing(). --
  /// Makes means whole that were scattered, and no step took: for a step with more backwards than
  /// any before (than the last 8, where it came before every backward). Call it before the
  /// gradients are added to; Accelerator::backward() does. Without it ready() and finish() refuse,
  /// `invalid_argument`; also after zeros that the program wrote itself, of which the reducer
  /// doesn't know: zero_gradients() is for that. Collective if there are such means, else without
  /// effect.
  /// @throws Error  invalid_argument: in the middle of a backward
  void gather_means();
  /// This rank's part was changed, as clipping does: the next backward needs gather_means().
  void part_changed() noexcept;
  /// An optimizer has applied the means, or left them out, on all ranks alike: as zero_gradients().
  /// Scattered ones are undefined then.
  void means_taken() noexcept;
  /// Whether the next backwards give every rank the whole means whatever their number.
  void reduce_whole(bool whole);

  /// Broadcasts rank 0's buffers, as torch does before each forward.
  void broadcast_buffers();

  /// Time that the last finish() waited for reductions: what overlap didn't hide.
  [[nodiscard]] std::chrono::nanoseconds exposed() const noexcept;

  struct Bucket {
    std::vector<std::size_t> parameters;  ///< in their order in memory
    std::size_t bytes = 0;                ///< as they travel, padding included
    DType dtype = DType::f32;             ///< as they travel
  };
  [[nodiscard]] std::vector<Bucket> buckets() const;
  [[nodiscard]] std::size_t bucket_count() const noexcept;
  /// Parameters in the order of the layout; the same on every rank.
  [[nodiscard]] std::vector<std::size_t> order() const;
  /// From now on the layout stays as it is: ranges() too, by which state may be cut. On all ranks
  /// at the same time, between two backwards.
  void keep_layout() noexcept;

  // -- reduce_scatter: the way back. After it the gradients are undefined. --
  /// Starts sending this rank's values of a bucket to the others. In the order of buckets.
  void share_values(std::size_t bucket);
  /// Waits for everything started: every rank then has every value.
  void finish_sharing();

  [[nodiscard]] ProcessGroup& group() const noexcept;
  [[nodiscard]] GradientMode mode() const noexcept;
  [[nodiscard]] void* stream() const noexcept;  ///< of its collectives: ReducerOptions::how

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::Compression;
using runtime::GradientMode;
using runtime::GradientReducer;
using runtime::ReducerOptions;
}  // namespace acc
