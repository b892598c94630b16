#pragma once

#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/sockets.hpp"
#include "runtime/bootstrap/store.hpp"

#include <memory>
#include <vector>

namespace acc::runtime {

/// A store that rank 0 serves from a thread of its own, for launchers that have none: over TCP at
/// the master's address, or within one machine at an abstract name. Bounded in what strangers can
/// make it hold; no secret protects it (as torch's): a job on a hostile network wants our agent.
struct TcpStorePlace {
  std::string host;  ///< name or number; empty: `name` is abstract
  std::uint16_t port = 0;
  /// So many ports from `port` on are tried: somebody may own the first.
  int ports = 1;
  std::string name;
  bool local = false;  ///< all ranks are on this machine
  std::string job;     ///< a server of another job or attempt is no server of ours
  int rank = 0;
  int size = 1;
};

/// Where the ranks of this contract meet.
/// @throws Error invalid_argument: nobody said where, and what to set.
[[nodiscard]] TcpStorePlace place_of(const Contract& contract);

/// Rank 0 serves, as long as its Store lives, and is its own first client; the others connect.
/// @throws Error timed_out, system: where it looked and what it found there.
[[nodiscard]] std::shared_ptr<Store> open_tcp_store(const TcpStorePlace& place, Deadline deadline);

}  // namespace acc::runtime
