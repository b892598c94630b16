#pragma once

#include "common/unique_fd.hpp"
#include "runtime/backend.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

/// Of the memory that a group of so many ranks shares on a node; most of it is never touched.
/// @throws Error invalid_argument: more than 512.
[[nodiscard]] std::size_t segment_bytes(int ranks);

struct ShmOptions {
  int rank = 0;  ///< among those of this node, as are the roots and peers of the calls
  int size = 1;
  std::vector<RankFacts> ranks;  ///< of this node; their `rank` is what messages say
  std::string group;             ///< for messages
  bool check = true;             ///< do all ranks call the same?
  /// Collective among the local ranks: all get the same new memory, zeroed.
  std::function<UniqueFd(std::size_t bytes, Clock::time_point deadline)> share_memory;
};

/// The backend of ranks of one node, processes or threads, over shared memory.
/// @param segment zeroed memory of `segment_bytes`, the same on all local ranks; none of them needs
/// to be there before another.
[[nodiscard]] std::unique_ptr<Backend> make_shm_backend(UniqueFd segment, ShmOptions options);

}  // namespace acc::runtime
