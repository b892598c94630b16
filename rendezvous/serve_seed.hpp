#pragma once

namespace acc::rendezvous {

/// Whether this node's agent offers itself as the first coordinator.
enum class ServeSeed {
  must,   ///< a taken port is an error
  may,    ///< if the endpoint's address belongs to this machine and its port is not in use yet
  never,  ///< it only dials
};

}  // namespace acc::rendezvous
