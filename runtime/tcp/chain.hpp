#pragma once

#include "runtime/shm/reduce.hpp"
#include "runtime/tcp/socket_mux.hpp"

#include <cstddef>
#include <vector>

namespace acc::runtime::tcp {

/// Pipelined reduction from host to host, in the order of the ranks: each host adds its ranks'
/// values to the partial sums and passes them on; the last host has the results, which return the
/// same way. Receiving, reducing and sending overlap.
///
/// Every element is summed from rank 0 to the last, so the result has the same bits for any size,
/// and each host sends and receives the message once in each direction, as in a large ring.
class Chain {
 public:
  struct Work {
    std::vector<const std::byte*> inputs;  ///< this host's ranks, ascending
    std::byte* result = nullptr;           ///< may be one of the inputs
    std::size_t count = 0;
    DType type = DType::u8;
    ReduceOp op = ReduceOp::sum;
    int ranks = 1;  ///< of the group, for avg
  };
  Chain(SocketMux& mux, AbortableWait& abortable, const RankPlacement& placement)
      : mux_{mux}, abortable_{abortable}, placement_{placement} {}

  /// Collective over the proxies of one rail, with the same count, type and op.
  void run(ActiveCall& active, const Work& work);

 private:
  SocketMux& mux_;
  AbortableWait& abortable_;
  const RankPlacement& placement_;
  std::vector<std::byte> ring_;  ///< of partial sums; kept between calls
};

}  // namespace acc::runtime::tcp
