#include "agent/daemon/request_shares.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

RequestShares::Share RequestShares::take(std::vector<Bound> bounds) {
  const bool is_full =
      std::ranges::any_of(bounds, [&](const Bound& one) { return open(one.name) >= one.most; });
  if (is_full) return nullptr;
  for (const auto& one : bounds) ++(*counts_)[one.name];
  return {this, [bounds = std::move(bounds), counts = counts_](void*) {
            for (const auto& one : bounds) {
              const auto found = counts->find(one.name);
              if (--found->second == 0) counts->erase(found);
            }
          }};
}

RequestShares::Share RequestShares::take(std::string name, std::size_t most) {
  return take(std::vector<Bound>{{std::move(name), most}});
}

std::size_t RequestShares::open(const std::string& name) const {
  const auto found = counts_->find(name);
  return found == counts_->end() ? 0 : found->second;
}

RequestShares::Share take_share(RequestShares& shares, uid_t source, const std::string& user) {
  // No user's name has a slash.
  const auto from = "from/" + std::to_string(source);
  return shares.take({{"all/", kMostOfUsers},
                      {from, kMostOfSource},
                      {user, kMostOfUser},
                      {from + '/' + user, kMostOfUserAtSource}});
}

}  // namespace acc::agent::daemon
