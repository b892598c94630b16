#include "runtime/selftest/checks.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

namespace acc::selftest {

using namespace runtime;

namespace {

void same(const char* variable, int ours) {
  const char* text = std::getenv(variable);
  if (text != nullptr && std::to_string(ours) != text)
    throw Failed{std::string{variable} + " is " + text + ", but the group says " +
                 std::to_string(ours)};
}

/// Several machines of a job may be on one host, where all their ranks are neighbours.
void same_locally(const ProcessGroup& group) {
  const char* size = std::getenv("LOCAL_WORLD_SIZE");
  const char* rank = std::getenv("LOCAL_RANK");
  const bool shares_host = size != nullptr && std::atoi(size) < group.local_size();
  if (shares_host && rank != nullptr && std::atoi(rank) <= group.local_rank()) return;
  same("LOCAL_RANK", group.local_rank());
  same("LOCAL_WORLD_SIZE", group.local_size());
}

}  // namespace

std::string check_rank_facts(ProcessGroup& group) {
  same("RANK", group.rank());
  same("WORLD_SIZE", group.size());
  same_locally(group);
  const auto all = group.all_gather_object(std::to_string(group.rank()) + " " +
                                           std::to_string(group.local_rank()) + " " +
                                           std::to_string(group.local_size()));
  int nodes = 0;
  int next_local = 0;
  int on_node = 0;
  for (std::size_t place = 0; place < all.size(); ++place) {
    int rank = -1;
    int local = -1;
    int local_size = -1;
    if (std::sscanf(all[place].c_str(), "%d %d %d", &rank, &local, &local_size) != 3 ||
        rank != static_cast<int>(place))
      throw Failed{"in the place of rank " + std::to_string(place) + " answers '" + all[place] +
                   "'"};
    if (local == 0) {
      ++nodes;
      next_local = 0;
      on_node = local_size;
    }
    if (local != next_local || local_size != on_node)
      throw Failed{"the ranks of a node don't follow one another: rank " + std::to_string(rank) +
                   " has local rank " + std::to_string(local)};
    ++next_local;
  }
  return std::to_string(group.size()) + (group.size() == 1 ? " rank on " : " ranks on ") +
         std::to_string(nodes) + (nodes == 1 ? " node" : " nodes") +
         ", each there once, as the variables say";
}

}  // namespace acc::selftest
