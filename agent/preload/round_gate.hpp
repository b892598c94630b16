#pragma once

#include "agent/preload/head_start.hpp"
#include "common/alive.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/socket_users.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace acc::agent {

/// Where the forked workers of a round wait until all are there: two pipes, rank 0's and that of
/// the others. Each worker reads one word; one whose pipe is closed before that ends. Used on the
/// loop's thread.
class RoundGate {
 public:
  explicit RoundGate(boost::asio::io_context& io) : timer_{io} {}

  /// For a new round; what waits at an older gate ends.
  /// @param environments  of the workers, "NAME=VALUE" each, null at the end
  /// @return false with errno
  bool make(std::span<const char* const* const> environments);
  /// What the worker with this index reads.
  [[nodiscard]] int end_of(std::size_t worker) const;
  /// Lets all go, rank 0 first where that has a head start.
  /// @param lease_ends_ns  what each of them reads
  void open(std::int64_t lease_ends_ns);
  /// Those that wait end, unless it was opened: then the others follow rank 0 whatever becomes of
  /// the preloader.
  void close();
  /// A second after the start of the round: does rank 0 serve a store?
  void look_for_store();

 private:
  struct Pipe {
    UniqueFd read;
    UniqueFd write;
    std::size_t waiting = 0;
  };
  static bool open_pipe(Pipe& pipe);
  static void let_go(Pipe& pipe, std::int64_t lease_ends_ns);
  void follow_head_start(Instant since, std::int64_t lease_ends_ns);
  bool is_listening();

  Pipe first_;   ///< of rank 0
  Pipe others_;  ///< of the others
  std::size_t first_worker_ = 0;
  bool is_opened_ = false;
  preload::HeadStart head_start_;
  rendezvous::SocketUsers sockets_;
  boost::asio::steady_timer timer_;
  Alive alive_;
};

}  // namespace acc::agent
