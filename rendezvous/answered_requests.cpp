#include "rendezvous/answered_requests.hpp"

#include <algorithm>

namespace acc::rendezvous {

namespace {

// Replies that a broken link loses are at most as many as its agent had open requests.
constexpr std::size_t kKept = 64;
constexpr std::size_t kKeptPerWorker = 4;
constexpr std::size_t kMostKept = 4 * 1024;

}  // namespace

// All other outcomes are those of requests that changed nothing.
void AnsweredRequests::note(const NodeId& agent, std::size_t workers, const KvReply& reply) {
  using Status = KvReply::Status;
  const bool is_final = reply.status == Status::ok || reply.status == Status::timed_out;
  if (!is_final || !reply.value.empty()) return;
  auto& replies = replies_[agent.name];
  // An agent that was started again counts from 1 again.
  if (replies.incarnation != agent.incarnation) replies = {agent.incarnation, 0, 0, {}};
  replies.newest = std::max(replies.newest, reply.id);
  const Reply kept{reply.id, reply.number, reply.status};
  if (replies.last.size() < std::min(kKept + kKeptPerWorker * workers, kMostKept)) {
    replies.last.push_back(kept);
  } else {
    replies.last[replies.oldest] = kept;
    replies.oldest = (replies.oldest + 1) % replies.last.size();
  }
}

std::optional<KvReply> AnsweredRequests::find(const NodeId& agent, std::uint64_t id) const {
  const auto found = replies_.find(agent.name);
  if (found == replies_.end() || found->second.incarnation != agent.incarnation ||
      id > found->second.newest)
    return std::nullopt;
  const auto& last = found->second.last;
  const auto reply = std::ranges::find(last, id, &Reply::id);
  if (reply == last.end()) return std::nullopt;
  KvReply again;
  again.id = id;
  again.status = reply->status;
  again.number = reply->number;
  return again;
}

}  // namespace acc::rendezvous
