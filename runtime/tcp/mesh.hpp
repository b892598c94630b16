#pragma once

#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/bootstrap/manifest.hpp"
#include "runtime/net/gather.hpp"
#include "runtime/net/sockets.hpp"
#include "runtime/net/store.hpp"
#include "runtime/tcp/listener.hpp"
#include "runtime/tcp/placement.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::tcp {

/// The connections of a rank to ranks of other hosts.
struct Mesh {
  Listener listener;                     ///< accepts the other ranks' connections
  std::vector<SocketAddress> addresses;  ///< of the listeners, by rank
  std::string token;                     ///< presented by every connection of the group
  std::string congestion;                ///< ACC_TCP_CONGESTION; empty: we choose
  std::vector<UniqueFd> rail;            ///< by host; a proxy's, to the other proxies of its rail
  std::vector<UniqueFd> control;         ///< by host; a leader's to the other leaders
};

/// The exchange of the ranks' addresses, for reporting a failure before `connect_mesh`.
/// @param manifest  outlives the returned object
[[nodiscard]] Gather gather_addresses(Store& store, const std::string& key,
                                      const GroupManifest& manifest, const RankPlacement& placement,
                                      Deadline deadline, std::function<void()> check_parties = {});

/// Exchanges addresses and connects. Collective over all ranks of the group.
/// @param check_parties  as Gather::Options::check_parties
/// @throws Error system: which connection failed, and the addresses of all ranks; or a rank has
///   only a loopback address to offer.
[[nodiscard]] Mesh connect_mesh(Store& store, const std::string& key, const GroupManifest& manifest,
                                const RankPlacement& placement, const Lookup& lookup,
                                const std::string& master_address, Deadline deadline,
                                std::function<void()> check_parties = {});

/// One more connection to another rank.
[[nodiscard]] Result<UniqueFd> connect_to_rank(const Mesh& mesh, int from, int to, Purpose purpose,
                                               Deadline deadline);
/// Sets the options of a connection between hosts.
void set_options(int fd, const Mesh& mesh, Purpose purpose);

}  // namespace acc::runtime::tcp
