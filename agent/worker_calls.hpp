#pragma once

#include "common/duration.hpp"
#include "common/ids.hpp"
#include "rendezvous/messages.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace acc::agent {

/// Handlers of the requests that workers send to their agent. An answer may be given immediately or
/// later, on the loop's thread; after the worker has closed its connection it has no effect.
struct WorkerCalls {
  using KvAnswer = std::function<void(rendezvous::KvReply)>;
  using TableAnswer = std::function<void(const std::vector<rendezvous::TableRow>&)>;
  /// `connection` is the asker in a store on this node; request.id is not set.
  std::function<void(std::uint64_t connection, rendezvous::KvRequest, KvAnswer)> on_kv;
  std::function<void(TableAnswer)> on_table;  ///< rows in the order of the nodes' ranks
  std::function<void(LocalRank, std::uint64_t step, Instant now)> on_beat;
  std::function<void(LocalRank, std::uint64_t step)> on_checkpoint;
  std::function<void(LocalRank, const std::string& why)> on_no_restart;  ///< printable
  /// A section begins; an empty name: it ends. A limit of 0: none.
  std::function<void(LocalRank, const std::string& name, Millis limit)> on_section;
  /// A connection ended: its waits in a store on this node are void.
  std::function<void(std::uint64_t connection)> on_gone;
};

}  // namespace acc::agent
