#pragma once

#include "common/alive.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace acc::agent {

/// Accepts the connections of a listening socket and passes them on; who may connect, and how many,
/// is the owner's rule. A bounded number is accepted in each turn of the loop, so that a flood
/// delays nothing else, and without descriptors or memory it pauses instead of spinning.
class AcceptLoop {
 public:
  /// Connected, non-blocking, closed at exec. May close the loop, or start it anew. What it throws
  /// leaves the event loop's run(), and costs this connection alone.
  using Take = std::function<void(UniqueFd)>;

  /// @param shortage  the log's line when no connection can be accepted, once until one is again
  AcceptLoop(boost::asio::io_context& io, std::string shortage, Take take);
  ~AcceptLoop();
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

  /// @param listening  non-blocking; in place of the one of an earlier call
  [[nodiscard]] Result<void> start(UniqueFd listening);
  /// Takes what waits now, as if the loop had had its turn.
  void accept_waiting();
  void close();
  [[nodiscard]] bool is_open() const { return listener_.is_open(); }
  /// The next connection will be accepted: without a wait or a pause an open socket is deaf.
  [[nodiscard]] bool is_accepting() const { return is_waiting_ || is_paused_; }

 private:
  void wait();
  void take_turn();
  void pause(int error);

  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer pause_;
  std::string shortage_;
  Take take_;
  std::uint64_t start_ = 0;  ///< number of the current listener; a wait for an older one ends
  bool is_waiting_ = false;
  bool is_paused_ = false;
  bool has_told_ = false;
  Alive alive_;
};

}  // namespace acc::agent
