#pragma once

#include "runtime/tcp/courier.hpp"

#include <cstddef>
#include <vector>

namespace acc::runtime::hosts {

/// An all-reduce between hosts of one rank each: every rank sends each other one that one's slice
/// of its values, reduces the slices that it gets with its own, and sends the result to all. Values
/// and results go in chunks by turns over the same sockets, so reducing, sending and receiving
/// overlap, and all ranks do the same amount of it (in a chain the inner hosts do twice as much as
/// the ends: with three, 1.6 times the time).
///
/// A slice's owner has all ranks' values, so it can take them in the order of the ranks.
class Trade {
 public:
  Trade(Courier& courier, Lifeline& lifeline, const Placement& placement)
      : courier_{courier}, lifeline_{lifeline}, placement_{placement} {}

  void run(Turn& turn);

 private:
  Courier& courier_;
  Lifeline& lifeline_;
  const Placement& placement_;
  std::vector<std::byte> scratch_;  ///< others' values that wait for the slowest; kept
};

}  // namespace acc::runtime::hosts
