#pragma once

#include "runtime/tcp/socket_mux.hpp"

#include <cstddef>
#include <vector>

namespace acc::runtime::tcp {

/// All-reduce between hosts with one rank each. Every rank owns a slice: it receives all others'
/// values of it, reduces them with its own, and sends the result to all. Chunks of values and
/// results alternate on the same sockets, so reducing, sending and receiving overlap, and all ranks
/// do the same amount of work (in a chain the inner hosts do twice that of the ends: 1.6 times the
/// time with three).
///
/// The owner of a slice has all ranks' values, so it reduces them in the order of the ranks.
class DirectAllReduce {
 public:
  DirectAllReduce(SocketMux& mux, AbortableWait& abortable, const RankPlacement& placement)
      : mux_{mux}, abortable_{abortable}, placement_{placement} {}

  void run(ActiveCall& active);

 private:
  SocketMux& mux_;
  AbortableWait& abortable_;
  const RankPlacement& placement_;
  std::vector<std::byte>
      scratch_;  ///< others' values, buffered for the slowest rank; kept between calls
};

}  // namespace acc::runtime::tcp
