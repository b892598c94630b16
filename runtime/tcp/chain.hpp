#pragma once

#include "runtime/shm/reduce.hpp"
#include "runtime/tcp/courier.hpp"

#include <cstddef>
#include <vector>

namespace acc::runtime::hosts {

/// A reduction that goes from host to host, in the order of the ranks: each adds its ranks' values
/// to the sum so far and passes that on; the last one's is the result, which comes back the same
/// way. All of it overlaps, in pieces as they come.
///
/// So every element is summed up from rank 0 to the last, one by one, whatever its place: the
/// result has the same bits for any size, and each host sends and receives the message once in each
/// direction, as in a ring of many.
class Chain {
 public:
  struct Work {
    std::vector<const std::byte*> inputs;  ///< of this host's ranks, in their order
    std::byte* result = nullptr;           ///< may be one of the inputs
    std::size_t count = 0;
    DType type = DType::u8;
    ReduceOp op = ReduceOp::sum;
    int ranks = 1;  ///< in all, for avg
  };
  Chain(Courier& courier, Lifeline& lifeline, const Placement& placement)
      : courier_{courier}, lifeline_{lifeline}, placement_{placement} {}

  /// On the carriers of one column, with the same count, type and op.
  void run(Turn& turn, const Work& work);

 private:
  Courier& courier_;
  Lifeline& lifeline_;
  const Placement& placement_;
  std::vector<std::byte> ring_;  ///< of sums so far; kept from call to call
};

}  // namespace acc::runtime::hosts
