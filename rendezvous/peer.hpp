#pragma once

#include "common/ids.hpp"

#include <cstdint>

namespace acc::rendezvous {

/// A connection of the coordinator, or of an agent that counts votes; never used twice.
using PeerId = Strong<struct PeerTag, std::uint64_t>;

}  // namespace acc::rendezvous
