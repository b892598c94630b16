#pragma once

#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/roll.hpp"
#include "runtime/bootstrap/sockets.hpp"
#include "runtime/bootstrap/store.hpp"
#include "runtime/tcp/placement.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::hosts {

/// What a connection is for.
enum class Purpose : std::uint32_t { column = 1, control, message, failure };

struct Guest {
  UniqueFd fd;
  int from = 0;
  Purpose purpose = Purpose::column;
};

/// The connections of a rank to ranks of other hosts.
struct Mesh {
  UniqueFd door;                         ///< listens; messages come here
  std::vector<SocketAddress> addresses;  ///< of the doors, by rank
  std::string token;                     ///< strangers don't know it
  std::string congestion;                ///< ACC_TCP_CONGESTION; empty: we choose
  std::vector<UniqueFd> column;          ///< by host; a carrier's to those of its column
  std::vector<UniqueFd> control;         ///< by host; a leader's to the other leaders
};

/// Tells the addresses around and connects. Collective over all ranks of the group.
/// @throws Error system: which connection failed, and the addresses of all ranks; or one rank would
///   have told the others a loopback address.
[[nodiscard]] Mesh connect_mesh(Store& store, const std::string& key, const Roll& roll,
                                const Placement& placement, const Lookup& lookup,
                                const std::string& master_address, Deadline deadline);

/// One more connection, to another rank's door.
[[nodiscard]] Result<UniqueFd> connect_to_rank(const Mesh& mesh, int from, int to, Purpose purpose,
                                               Deadline deadline);
/// A guest at the door who knows the token; not_found: nobody, or a stranger; else this process
/// can't take connections.
[[nodiscard]] Result<Guest> receive_guest(const Mesh& mesh, int size);

}  // namespace acc::runtime::hosts
