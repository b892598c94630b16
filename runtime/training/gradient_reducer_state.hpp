#pragma once

#include "runtime/training/gradient_layout.hpp"
#include "runtime/training/step_means.hpp"

#include <acc/gradient_reducer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace acc::runtime {

namespace training {

/// "'fc.weight', 'fc.bias' and 3 more"
[[nodiscard]] std::string named(std::span<const Parameter> parameters,
                                std::span<const std::size_t> indices);

}  // namespace training

/// State of backwards: what is ready, in flight, and accumulated.
struct GradientReducer::State {
  State(ProcessGroup its_group, std::vector<Parameter> parameters, ReducerOptions its_options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  ProcessGroup group;
  ReducerOptions options;
  training::GradientLayout layout;
  bool settled = false;  ///< is the layout final?

  // This backward, and since the last reduction.
  bool syncing = true;
  bool whole = false;                          ///< don't scatter
  bool begun = false;                          ///< a ready() of this backward was called
  bool reduces = true;                         ///< was syncing when it came
  std::vector<char> is_ready;                  ///< by parameter, in this backward
  std::vector<char> used;                      ///< by parameter, since the last reduction
  bool added_up = false;                       ///< was a backward since then not reduced?
  std::uint64_t reductions = 0;                ///< in all
  std::uint64_t means = 0;                     ///< number of the last one; 0: its means are gone
  training::StepMeans step_means;              ///< where they are scattered
  bool tells_unused = false;                   ///< was a map of the used ones reduced since zeros?
  std::vector<char> got;                       ///< by parameter, since zeros, from any rank
  std::vector<char> undefined;  ///< by parameter: at the start, and once it was applied
  std::vector<std::size_t> missing_in_bucket;  ///< by bucket: how many aren't ready
  std::size_t next_bucket = 0;                 ///< the first that wasn't started
  std::vector<Work> works;                     ///< by bucket
  std::vector<std::size_t> ready_order;        ///< of the first reduced backward
  std::vector<std::pair<std::size_t, std::vector<std::byte>>> kept;  ///< gradients of unused ones
  /// Of a static graph: the parameters that have no gradient here, once that is known.
  std::optional<std::vector<std::size_t>> static_missing;
  std::vector<std::int32_t> used_anywhere;  ///< the map; filled by the reduction
  Work used_work;
  std::vector<std::pair<std::size_t, Work>> sharing;  ///< buckets whose values are in flight
  std::chrono::nanoseconds exposed{0};
  std::vector<HostTensor> restored;  ///< gradients of a checkpoint, until the next backward
  std::vector<char> restored_undefined;

  [[nodiscard]] std::span<const Parameter> parameters() const { return layout.parameters(); }
  [[nodiscard]] const std::vector<training::BucketMemory>& buckets() const {
    return layout.buckets();
  }
  [[nodiscard]] bool scatters() const { return options.mode == GradientMode::reduce_scatter; }
  /// Should buckets be laid out in the order of this backward? Not if it may change between
  /// backwards.
  [[nodiscard]] bool learns_order() const {
    return !settled && (!options.find_unused_parameters || options.static_graph);
  }
  /// Not while parts may still be cut anew: then every rank gets all, once.
  [[nodiscard]] bool scatters_now() const {
    return scatters() && !learns_order() && !whole && step_means.is_last();
  }

  void begin_backward();
  void refuse_parts() const;
  [[nodiscard]] bool is_reduced() const { return begun ? reduces : syncing; }
  void zero_gradients();
  void put_restored();
  void gather_means();
  void ready(std::size_t index);
  void start_complete_buckets();
  void reduce(std::size_t bucket);
  void take_means(const training::BucketMemory& bucket);
  [[nodiscard]] std::vector<std::size_t> missing() const;
  void take_missing(const std::vector<std::size_t>& absent);
  void finish(const std::vector<std::size_t>& absent, bool asks);
  void cancel();
  [[noreturn]] void refuse_missing(const std::vector<std::size_t>& absent);
  void start_map();
  void finish_map();
  void restore_kept(std::span<const std::int32_t> have);
  void note_gradients();
  void forget_gradients();
  void means_taken() noexcept;
  [[nodiscard]] bool has_gradient(std::size_t index) const { return !tells_unused || got[index]; }
  void wait_for_all(bool asks);
  void settle_layout();
  void drain() noexcept;
  void broadcast(const TensorView& value);
};

}  // namespace acc::runtime
