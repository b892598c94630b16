#pragma once

#include <string>

namespace acc::fake {

/// Plays the network of one communicator in a thread that ends with its last rank: listens at an
/// abstract address, and carries out each operation when all that take part have asked for it. What
/// doesn't match is never answered, as NCCL would hang.
/// @return the address; empty: no socket
std::string start_network();

}  // namespace acc::fake
