#pragma once

#include "agent/daemon/http_quota.hpp"
#include "agent/daemon/request_shares.hpp"

#include <cstddef>

/// How many connections the daemon takes at each of its doors, by the descriptors that it may have.
/// Pure.
namespace acc::agent::daemon {

struct ConnectionBounds {
  HttpLimits clients;  ///< at the unix socket
  HttpLimits peers;    ///< at the port for other nodes
  HttpLimits browsers;
  ShareLimits shares;                 ///< of what peers ask
  std::size_t half_open = 1024;       ///< peers that haven't proved to have the secret, and …
  std::size_t half_open_named = 512;  ///< … of one source those that name a key
  std::size_t kept = kKeptPeers;
  std::size_t listed = kListedPeers;
  bool is_lowered = false;
};

struct Doors {
  bool has_peers = false;
  bool has_browsers = false;
};

/// What a connection costs at most: itself, and the two files of a job whose output it follows.
inline constexpr std::size_t kDescriptorsOfConnection = 3;

/// The limit of descriptors from which on no bound is lowered.
[[nodiscard]] std::size_t descriptors_wanted(Doors doors);
/// Bounds with which all connections together leave a quarter of `descriptors`, but no more than
/// 2048, to jobs and files of the daemon. Those of all users together are lowered by the same
/// factor, and so is what is left to root of the peers' connections; of the places for root at the
/// unix socket none is lost. One user or source has at most three quarters of them.
[[nodiscard]] ConnectionBounds connection_bounds(std::size_t descriptors, Doors doors);

}  // namespace acc::agent::daemon
