#pragma once

#include "runtime/tcp/lifeline.hpp"
#include "runtime/tcp/placement.hpp"

#include <cstddef>
#include <deque>
#include <vector>

namespace acc::runtime::hosts {

/// A carrier's sockets to the other hosts, and what is to go over them: in each direction one piece
/// of memory behind the other, all sockets at once. Both ends know the sizes: nothing is added to
/// the bytes.
class Courier {
 public:
  /// @param sockets  by host; the own one is empty.
  Courier(Lifeline& lifeline, const Placement& placement, std::vector<UniqueFd> sockets)
      : lifeline_{lifeline}, placement_{placement}, ends_(sockets.size()) {
    for (std::size_t h = 0; h < sockets.size(); ++h) ends_[h].fd = std::move(sockets[h]);
  }

  void send(std::size_t host, const std::byte* at, std::size_t bytes) {
    if (bytes > 0) ends_[host].out.push_back({const_cast<std::byte*>(at), bytes});
  }
  void receive(std::size_t host, std::byte* at, std::size_t bytes) {
    if (bytes > 0) ends_[host].in.push_back({at, bytes});
  }
  /// Until all that was to be received is there; sends what it can meanwhile.
  void receive_all(Turn& turn) { run(turn, false); }
  /// Until all is received and sent.
  void finish(Turn& turn) { run(turn, true); }

  [[nodiscard]] int socket(std::size_t host) const { return ends_[host].fd.get(); }
  /// The rank at the other end.
  [[nodiscard]] int rank_at(std::size_t host) const {
    return placement_.hosts[host].ranks[placement_.index];
  }

 private:
  struct Piece {
    std::byte* at;
    std::size_t bytes;
  };
  struct End {
    UniqueFd fd;
    std::deque<Piece> out, in;
  };

  void run(Turn& turn, bool all_sent);
  bool move_in(Turn& turn, std::size_t host);
  bool move_out(Turn& turn, std::size_t host);

  Lifeline& lifeline_;
  const Placement& placement_;
  std::vector<End> ends_;
};

/// One attempt at a socket. @return bytes; 0: not now
[[nodiscard]] std::size_t receive_some(int fd, std::byte* at, std::size_t bytes, Turn& turn,
                                       Lifeline& lifeline, int rank);
[[nodiscard]] std::size_t send_some(int fd, const std::byte* at, std::size_t bytes, Turn& turn,
                                    Lifeline& lifeline, int rank);

}  // namespace acc::runtime::hosts
