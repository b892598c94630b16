#pragma once

#include "runtime/backend.hpp"

#include <string>
#include <vector>

namespace acc::runtime {

/// Group metadata; identical on all ranks except rank, local_rank and local_size.
struct GroupFacts {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among those of this group on this node
  int local_size = 1;
  std::string name;              ///< for messages
  std::string key;               ///< prefix of its keys in the store, never used twice in a job
  std::vector<RankFacts> ranks;  ///< by rank
};

}  // namespace acc::runtime
