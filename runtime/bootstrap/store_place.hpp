#pragma once

#include "runtime/bootstrap/contract.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace acc::runtime {

/// Where the ranks of a job find the store that rank 0 serves.
struct TcpStorePlace {
  std::string host;  ///< name or number; empty: `name` is abstract
  /// Rank 0 takes the first free one, the others ask each. One alone where the user named it: a
  /// second job that was given the same one is refused, not moved to a neighbour's.
  std::vector<std::uint16_t> ports;
  std::string name;
  bool local = false;  ///< all ranks are on this machine
  std::string job;     ///< told to the server, which refuses ranks of another job
  int rank = 0;
  int size = 1;
};

/// Where the ranks of this contract meet: the same on every rank, different for two jobs that run
/// at the same time, as far as their variables differ.
/// @throws Error invalid_argument: nobody said where, and what to set.
[[nodiscard]] TcpStorePlace place_of(const Contract& contract);

/// For messages: "@name", "host:29500", "host:21007 and 7 other ports".
[[nodiscard]] std::string describe(const TcpStorePlace& place);

}  // namespace acc::runtime
