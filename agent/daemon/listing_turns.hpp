#pragma once

#include "common/alive.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <deque>
#include <memory>

namespace acc::agent::daemon {

/// Connections to nodes that are open for lists of all nodes, of all users together, in the order
/// in which they are asked for. A fifth is left to root, whose lists wait for no other user's.
class ListingTurns {
 public:
  ListingTurns(boost::asio::io_context& io, std::size_t most)
      : io_{io}, most_{most}, most_of_users_{most - most / 5} {}
  ListingTurns(const ListingTurns&) = delete;
  ListingTurns& operator=(const ListingTurns&) = delete;

  /// Held while a node is asked; may outlive this object. Null: this object has ended.
  using Turn = std::shared_ptr<void>;
  boost::asio::awaitable<Turn> wait(bool is_root);
  [[nodiscard]] std::size_t running() const { return running_; }

 private:
  using Queue = std::deque<std::shared_ptr<boost::asio::steady_timer>>;  ///< cancelled at its turn
  [[nodiscard]] bool is_full(bool is_root) const {
    return running_ >= most_ || (!is_root && of_users_ >= most_of_users_);
  }
  void end(bool is_root);
  void give();

  boost::asio::io_context& io_;
  std::size_t most_;
  std::size_t most_of_users_;
  std::size_t running_ = 0;
  std::size_t of_users_ = 0;
  Queue root_waits_;
  Queue users_wait_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
