#pragma once

#include "common/unique_fd.hpp"
#include "runtime/backend.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

/// Bytes of the segment of a group with so many ranks on a node; most of it is never touched.
/// @throws Error invalid_argument: more than 512.
[[nodiscard]] std::size_t segment_bytes(int ranks);

struct ShmOptions {
  int rank = 0;  ///< index on this node, as are the roots and peers of the calls
  int size = 1;
  std::vector<RankFacts> ranks;  ///< of this node; messages use their `rank`
  std::string group;             ///< for messages
  bool check = true;             ///< compare the calls of the ranks
  /// Collective over the local ranks: the same new, zeroed memory for all.
  std::function<UniqueFd(std::size_t bytes, Clock::time_point deadline)> share_memory;
  /// Throws if this rank can't share memory any more; before the ranks meet for it. Empty: it can.
  std::function<void()> require_sharing = {};
};

/// Shared-memory backend for ranks of one node, processes or threads.
/// @param segment zeroed memory of `segment_bytes`, the same on all local ranks, which may start in
///   any order.
[[nodiscard]] std::unique_ptr<Backend> make_shm_backend(UniqueFd segment, ShmOptions options);

}  // namespace acc::runtime
