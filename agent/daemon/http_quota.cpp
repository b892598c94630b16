#include "agent/daemon/http_quota.hpp"

#include <algorithm>

namespace acc::agent::daemon {

bool ClientQuota::take_connection(uid_t uid) {
  const auto free_to_all = limits_.connections - (is_operator(uid) ? 0 : limits_.reserved);
  auto& share = shares_[uid];
  if (connections_ >= free_to_all || share.connections >= limits_.connections_of_a_user) {
    forget_empty(uid);
    return false;
  }
  ++connections_;
  ++share.connections;
  return true;
}

std::optional<uid_t> ClientQuota::loser_to(uid_t uid) const {
  const auto own = shares_.find(uid);
  const auto held = own == shares_.end() ? 0 : own->second.connections;
  if (!limits_.replaces || held >= limits_.connections_of_a_user) return std::nullopt;
  // Where root has some as well, one place isn't enough, and none is to be ended in vain.
  const auto free_to_all = limits_.connections - (is_operator(uid) ? 0 : limits_.reserved);
  const auto needed = connections_ + 1 - std::min(connections_ + 1, free_to_all);
  std::optional<uid_t> loser;
  std::size_t most = held + 1;
  std::size_t surplus = 0;
  for (const auto& [user, share] : shares_) {
    if (is_operator(user) || user == uid || share.connections <= held + 1) continue;
    surplus += share.connections - (held + 1);
    if (share.connections <= most) continue;
    loser = user;
    most = share.connections;
  }
  return surplus < needed ? std::nullopt : loser;
}

std::optional<std::uint64_t> connection_to_end(const std::vector<HeldConnection>& held) {
  const HeldConnection* chosen = nullptr;
  for (const auto& one : held) {
    if (one.is_changing) continue;
    const bool is_first = chosen == nullptr;
    const bool is_idler = !is_first && one.idle_since &&
                          (!chosen->idle_since || *one.idle_since < *chosen->idle_since);
    const bool is_newer =
        !is_first && !one.idle_since && !chosen->idle_since && one.number > chosen->number;
    if (is_first || is_idler || is_newer) chosen = &one;
  }
  return chosen == nullptr ? std::nullopt : std::optional{chosen->number};
}

void ClientQuota::give_connection(uid_t uid) {
  --connections_;
  --shares_[uid].connections;
  forget_empty(uid);
}

bool ClientQuota::take_body(uid_t uid, std::size_t bytes) {
  auto& share = shares_[uid];
  if (body_bytes_ + bytes > limits_.body_bytes ||
      share.body_bytes + bytes > limits_.body_bytes_of_a_user)
    return false;
  body_bytes_ += bytes;
  share.body_bytes += bytes;
  return true;
}

void ClientQuota::give_body(uid_t uid, std::size_t bytes) {
  body_bytes_ -= bytes;
  shares_[uid].body_bytes -= bytes;
  forget_empty(uid);
}

bool ClientQuota::take_reply(uid_t uid, std::size_t bytes) {
  auto& share = shares_[uid];
  const bool has_room = reply_bytes_ + bytes <= limits_.reply_bytes &&
                        share.reply_bytes + bytes <= limits_.reply_bytes_of_a_user;
  if (!has_room && share.reply_bytes > 0) return false;
  reply_bytes_ += bytes;
  share.reply_bytes += bytes;
  return true;
}

void ClientQuota::give_reply(uid_t uid, std::size_t bytes) {
  reply_bytes_ -= bytes;
  shares_[uid].reply_bytes -= bytes;
  forget_empty(uid);
}

void ClientQuota::forget_empty(uid_t uid) {
  const auto found = shares_.find(uid);
  if (found != shares_.end() && found->second.connections == 0 && found->second.body_bytes == 0 &&
      found->second.reply_bytes == 0)
    shares_.erase(found);
}

}  // namespace acc::agent::daemon
