#include "runtime/tcp/placement.hpp"

#include <algorithm>

namespace acc::runtime {

RankPlacement::RankPlacement(const GroupManifest& manifest, int mine)
    : rank{mine}, host_of_(manifest.members.size()), index_of_(manifest.members.size()) {
  std::vector<std::string> keys;
  for (const auto& member : manifest.members) {
    const auto found = std::find(keys.begin(), keys.end(), member.host.key);
    const auto at = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(member.host.key);
      hosts.push_back({member.host.name, {}});
    }
    const auto r = static_cast<std::size_t>(member.rank);
    host_of_[r] = at;
    index_of_[r] = hosts[at].ranks.size();
    hosts[at].ranks.push_back(member.rank);
  }
  std::size_t least = manifest.members.size();
  for (const auto& one : hosts) {
    least = std::min(least, one.ranks.size());
    most = std::max(most, one.ranks.size());
    in_order =
        in_order && one.ranks.back() - one.ranks.front() + 1 == static_cast<int>(one.ranks.size());
  }
  rails = static_cast<int>(least);
  host = host_of(mine);
  index = index_of(mine);
}

}  // namespace acc::runtime
