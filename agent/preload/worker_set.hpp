#pragma once

#include "agent/preload/preload_messages.hpp"
#include "common/alive.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace acc::agent {

/// Sends one packet with descriptors. @return false with errno; EMSGSIZE also where it is longer
/// than preload::kLongestMessage
bool send_packet(int socket, const std::string& packet, std::span<const int> fds);

/// The agent's ends of the channels to a set of workers that the preloader forks: a pipe to their
/// maker, a socket on which each of them takes one order. When both are closed, the maker ends, and
/// so does each worker that has no order. Used on the loop's thread.
class WorkerSet {
 public:
  /// Throws nothing; is_open() is false with errno if there is no descriptor left.
  WorkerSet(boost::asio::io_context& io, preload::ForkNumber number);

  [[nodiscard]] bool is_open() const { return asks_ && orders_.is_open(); }
  [[nodiscard]] preload::ForkNumber number() const { return number_; }
  /// What encode_round is sent with.
  [[nodiscard]] std::array<int, 2> theirs() const { return {orders_end_.get(), asks_end_.get()}; }
  void close_theirs();
  /// Calls `then` when all of its processes have ended.
  void watch(std::function<void()> then);

  [[nodiscard]] pid_t maker() const { return maker_; }
  void set_maker(pid_t pid) { maker_ = pid; }
  /// How many workers there are to be.
  /// @param at_once  their orders wait for them: no time for what can be done ahead
  bool ask(std::uint32_t workers, bool at_once);
  [[nodiscard]] bool has_forked_ahead() const { return has_forked_ahead_; }
  bool order(const std::string& packet, std::span<const int> fds);

  /// Ends all that have no order. @return a socket that is at its end when they have ended
  UniqueFd end();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  const preload::ForkNumber number_;
  pid_t maker_ = 0;  ///< 0: it has not begun
  bool has_forked_ahead_ = false;
  Descriptor orders_;
  UniqueFd asks_;  ///< after orders_: the maker learns first that it is to end
  UniqueFd orders_end_;
  UniqueFd asks_end_;
  Alive alive_;
};

}  // namespace acc::agent
