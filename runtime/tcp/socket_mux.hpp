#pragma once

#include "runtime/tcp/abortable_wait.hpp"
#include "runtime/tcp/placement.hpp"

#include <cstddef>
#include <deque>
#include <vector>

namespace acc::runtime::tcp {

/// Per-direction FIFO of buffers, multiplexed over a proxy's sockets to the other hosts. Both ends
/// know the sizes, so there is no framing.
class SocketMux {
 public:
  /// @param sockets  by host; the own one is empty.
  SocketMux(AbortableWait& abortable, const RankPlacement& placement, std::vector<UniqueFd> sockets)
      : abortable_{abortable}, placement_{placement}, ends_(sockets.size()) {
    for (std::size_t h = 0; h < sockets.size(); ++h) ends_[h].fd = KeptFd{std::move(sockets[h])};
  }

  void send(std::size_t host, const std::byte* at, std::size_t bytes) {
    if (bytes > 0) ends_[host].out.push_back({const_cast<std::byte*>(at), bytes});
  }
  void receive(std::size_t host, std::byte* at, std::size_t bytes) {
    if (bytes > 0) ends_[host].in.push_back({at, bytes});
  }
  /// @throws Error peer_lost: the program has closed a socket; another file may have its number.
  void require_open(ActiveCall& active);
  /// Runs until everything is received and sent: what is sent to a socket after it comes behind.
  void finish(ActiveCall& active);

  [[nodiscard]] int socket(std::size_t host) const { return ends_[host].fd.get(); }
  /// The rank at the other end of a socket.
  [[nodiscard]] int rank_at(std::size_t host) const {
    return placement_.hosts[host].ranks[placement_.index];
  }

 private:
  struct Piece {
    std::byte* at;
    std::size_t bytes;
  };
  struct End {
    KeptFd fd;
    std::deque<Piece> out, in;
  };

  bool move_in(ActiveCall& active, std::size_t host);
  bool move_out(ActiveCall& active, std::size_t host);

  AbortableWait& abortable_;
  const RankPlacement& placement_;
  std::vector<End> ends_;
};

/// One non-blocking attempt. @return bytes; 0: not ready
[[nodiscard]] std::size_t receive_some(int fd, std::byte* at, std::size_t bytes, ActiveCall& active,
                                       AbortableWait& abortable, int rank);
[[nodiscard]] std::size_t send_some(int fd, const std::byte* at, std::size_t bytes,
                                    ActiveCall& active, AbortableWait& abortable, int rank);

}  // namespace acc::runtime::tcp
