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

RequestKind kind_of(std::string_view method, std::span<const std::string> path) {
  const bool is_events = path.size() == 1 && path[0] == "events";
  const bool is_log = path.size() == 3 && path[0] == "jobs" && path[2] == "logs";
  return method == "GET" && (is_events || is_log) ? RequestKind::stream : RequestKind::brief;
}

RequestShares::Share take_share(RequestShares& shares, uid_t source, const std::string& user,
                                RequestKind kind, const ShareLimits& of_kinds) {
  const bool is_stream = kind == RequestKind::stream;
  const auto& limits = is_stream ? of_kinds.streams : of_kinds.briefs;
  // No user's name has a slash.
  const std::string of = is_stream ? "streams/" : "brief/";
  const auto from = of + "from/" + std::to_string(source);
  return shares.take({{of, limits.all},
                      {from, limits.of_source},
                      {of + user, limits.of_user},
                      {from + '/' + user, limits.of_user_at_source}});
}

}  // namespace acc::agent::daemon
