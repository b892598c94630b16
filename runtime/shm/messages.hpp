#pragma once

#include "runtime/shm/peers.hpp"

#include <cstdint>
#include <vector>

namespace acc::runtime::shm {

/// send and recv: a ring of cells for each pair of ranks. What fits into it is gone at once; a
/// sender of more waits for its receiver. Messages of a pair keep their order.
class Messages {
 public:
  explicit Messages(Peers& peers);
  /// May run beside anything else of this rank but another send.
  void send(Turn& turn);
  void recv(Turn& turn);

 private:
  void check(const Turn& turn, const Descriptor& sent) const;
  Peers& peers_;
  std::vector<std::uint32_t> sent_;      ///< cells, by receiver
  std::vector<std::uint32_t> received_;  ///< cells, by sender
};

}  // namespace acc::runtime::shm
