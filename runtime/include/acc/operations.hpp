#pragma once

#include <acc/process_group.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Operations on whole tensors and lists, as Accelerate's `utils.operations`: made of the calls of
/// a ProcessGroup, so collective, and with its errors. Results are in host memory. A tensor may be
/// in device memory, whose work so far is in the order of the legacy stream: where the group
/// reduces there (nccl) the calls do too, and only the result is copied.
namespace acc::runtime {

/// As Accelerate's words. `none` sums too: what the original does, and what its users rely on. max
/// and min are ours.
enum class Reduction : std::uint8_t { none, sum, mean, max, min };
/// @throws Error invalid_argument for other words than "none", "sum" and "mean".
[[nodiscard]] Reduction parse_reduction(std::string_view word);

/// The tensors of all ranks, concatenated along dim 0; of scalars one dimension of as many as there
/// are ranks. All ranks have the same shape and type. A group of one: `mine` as it is.
/// @throws Error mismatch, on all ranks alike, with the group as before: where the group compares
///   calls (by default on cpu), ranks with other shapes or types
[[nodiscard]] HostTensor gather(ProcessGroup& group, const ConstTensorView& mine);

/// `mine` made as long along `dim` as the longest of all ranks, with `fill` behind it (before it
/// with `fill_first`). dim < 0 counts from the last. A tensor without such a dimension comes back
/// as it is, and doesn't communicate, as in the original: so the ranks' tensors have equally many
/// dimensions. The other dimensions need not be the same.
/// @throws Error invalid_argument when the type can't hold `fill`.
[[nodiscard]] HostTensor pad_across_processes(ProcessGroup& group, const ConstTensorView& mine,
                                              int dim = 0, double fill = 0,
                                              bool fill_first = false);

/// Sum, mean, maximum or minimum over the ranks, in a copy. A group of one: `mine` as it is. The
/// original's `scale` is left out: it has no effect there but on TPUs.
/// @throws Error invalid_argument for the mean of whole numbers over several ranks.
[[nodiscard]] HostTensor reduce(ProcessGroup& group, const ConstTensorView& mine,
                                Reduction how = Reduction::mean);

/// `from`'s tensor, on every rank. All ranks have the same shape and type.
[[nodiscard]] HostTensor broadcast(ProcessGroup& group, const ConstTensorView& mine, int from = 0);

/// The lists of all ranks as one, in their order. The elements are any bytes (JSON, for example);
/// the lists may be of different lengths.
[[nodiscard]] std::vector<std::string> gather_object(ProcessGroup& group,
                                                     std::span<const std::string> mine);

/// `from`'s list, on every rank.
[[nodiscard]] std::vector<std::string> broadcast_object_list(ProcessGroup& group,
                                                             std::span<const std::string> mine,
                                                             int from = 0);

/// How many of the `gathered` samples of a step count. In the last step some may be there for the
/// second time, only so that all ranks had the same number: those are behind `remainder`.
/// @param remainder  LoaderStatus::remainder; -1: not known. 0: the last step was full.
[[nodiscard]] constexpr std::size_t samples_for_metrics(std::size_t gathered,
                                                        bool end_of_dataloader,
                                                        std::int64_t remainder) noexcept {
  if (!end_of_dataloader || remainder <= 0) return gathered;
  return gathered < static_cast<std::size_t>(remainder) ? gathered
                                                        : static_cast<std::size_t>(remainder);
}
/// The first `count` along dim 0 (all, if there are fewer, or for a scalar).
[[nodiscard]] HostTensor first_of(const ConstTensorView& tensor, std::size_t count);

/// A flag that any rank may set; all ranks see it at their next check: to stop early, for example.
/// As set_trigger and check_trigger.
class Trigger {
 public:
  void set() noexcept { set_ = true; }
  /// Collective. True on all ranks if any has set it since the last check that returned true; that
  /// clears it.
  [[nodiscard]] bool check(ProcessGroup& group);

 private:
  bool set_ = false;
};

}  // namespace acc::runtime

namespace acc {
using runtime::Reduction;
}  // namespace acc
