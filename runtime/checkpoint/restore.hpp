#pragma once

#include "runtime/checkpoint/folder.hpp"

#include <acc/checkpoint.hpp>
#include <acc/process_group.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace acc::runtime::checkpoint {

/// Collective. The numbers that any rank sees in the folder, the newest first.
/// @throws Error system: a rank can't read the folder.
[[nodiscard]] std::vector<std::uint64_t> candidates(ProcessGroup& group, const fs::path& folder);

/// Collective. Opens the newest checkpoint that is complete on every rank; each rank reads its
/// share of what has to be checked.
/// @param bad  receives the numbers that were skipped.
/// @return nothing: no rank sees any.
/// @throws Error corrupt: there are some, and none is whole; system: one can't be read, which is no
///   evidence of damage: it may be read again in a minute.
[[nodiscard]] std::optional<Restored> open_newest(ProcessGroup& group, const fs::path& folder,
                                                  int threads, std::set<std::uint64_t>& bad,
                                                  const Tell& tell);
/// Collective. This one or none. @throws Error corrupt; system: it isn't there.
[[nodiscard]] Restored open_this(ProcessGroup& group, const fs::path& path, int threads);

/// Collective, on all ranks after a failure. Has the checkpoint been removed since it was opened,
/// as far as any rank sees? The run that writes into its folder keeps some of the newest only.
/// @param may_be  whether this rank's failure may come from that; if it can't on one, it is false.
[[nodiscard]] bool was_removed(ProcessGroup& group, const Restored& restored, bool may_be);

/// How often a reader of a folder starts again with a newer checkpoint.
inline constexpr int kMostReloads = 5;

/// Collective. Fills the tensors of `state` and the texts of `restored`.
/// @throws Error on all ranks alike.
void fill(ProcessGroup& group, const CheckpointState& state, Restored& restored);

}  // namespace acc::runtime::checkpoint
