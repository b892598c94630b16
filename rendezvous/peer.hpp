#pragma once

#include "common/ids.hpp"

#include <cstdint>

namespace acc::rendezvous {

/// A connection of the coordinator, or of an agent that counts votes; an id is never reused.
using PeerId = Strong<struct PeerTag, std::uint64_t>;

}  // namespace acc::rendezvous
