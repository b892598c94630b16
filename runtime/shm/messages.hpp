#pragma once

#include "runtime/shm/peers.hpp"

#include <cstdint>
#include <vector>

namespace acc::runtime::shm {

/// send and recv: a ring of cells for each ordered pair of ranks. A send that fits returns
/// immediately; a larger one waits for its receiver. Messages of a pair stay in order.
class Messages {
 public:
  explicit Messages(Peers& peers);
  /// May run concurrently with anything of this rank except another send.
  void send(ActiveCall& active);
  void recv(ActiveCall& active);

 private:
  void check(const ActiveCall& active, const Descriptor& sent) const;
  Peers& peers_;
  std::vector<std::uint32_t> sent_;      ///< cells, by receiver
  std::vector<std::uint32_t> received_;  ///< cells, by sender
};

}  // namespace acc::runtime::shm
