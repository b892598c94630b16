#include "rendezvous/restored_writes.hpp"

namespace acc::rendezvous {

void RestoredWrites::begin(bool is_inherited) {
  is_inherited_ = is_inherited;
  replays_.clear();
}

// An agent that was started again has other workers than its predecessor.
RestoredWrites::Replay& RestoredWrites::replay_of(const NodeId& agent) {
  auto& replay = replays_[agent.name];
  if (replay.incarnation != agent.incarnation) replay = {agent.incarnation, false, {}};
  return replay;
}

// A value may be restored twice, as the store keeps the one that it has.
bool RestoredWrites::take(const NodeId& agent, const KvRestore& part) {
  if (!is_inherited_) return false;
  auto& replay = replay_of(agent);
  if (replay.is_complete) return false;
  return part.added == 0 || replay.shares.insert(part.key).second;
}

void RestoredWrites::complete(const NodeId& agent) {
  auto& replay = replay_of(agent);
  replay.is_complete = true;
  replay.shares.clear();
}

bool RestoredWrites::is_complete(const NodeId& agent) const {
  const auto found = replays_.find(agent.name);
  return found != replays_.end() && found->second.incarnation == agent.incarnation &&
         found->second.is_complete;
}

}  // namespace acc::rendezvous
