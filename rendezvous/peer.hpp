#pragma once

#include "common/ids.hpp"

#include <cstdint>
#include <string>

namespace acc::rendezvous {

/// A connection of the coordinator, or of an agent that counts votes; an id is never reused.
using PeerId = Strong<struct PeerTag, std::uint64_t>;

/// How a connection was lost.
struct LinkLoss {
  std::string why;             ///< for messages: "closed the connection"
  bool not_authentic = false;  ///< the secrets differ, so another attempt won't help
  /// By the peer's process or, when that ended, by its system, as far as TCP tells: what lies
  /// between may send a reset in its name. Not by this side, nor as nothing was heard.
  bool is_closed_by_peer = false;
};

}  // namespace acc::rendezvous
