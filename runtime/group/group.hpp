#pragma once

#include "runtime/backend.hpp"
#include "runtime/bootstrap/store.hpp"

#include <acc/process_group.hpp>

#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

/// Who is in a group and how it was asked for; the same on all ranks but for `rank` and locals.
struct GroupFacts {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among those of this group on this node
  int local_size = 1;
  std::string name;              ///< for people
  std::string key;               ///< prefix of its keys in the store, never used twice in a job
  std::vector<RankFacts> ranks;  ///< by rank
};

}  // namespace acc::runtime
