#pragma once

#include "agent/daemon/caller_link.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

namespace acc::agent::daemon {

/// Which trials run: of each user a few at once, and further ones in the order of their arrival.
/// Pure.
class TrialQueue {
 public:
  using Ticket = std::uint64_t;
  struct Limits {
    std::size_t at_once = 4;  ///< of a user
    std::size_t waiting = 256;
  };
  explicit TrialQueue(Limits limits) : limits_{limits} {}

  /// Nothing: too many of this user wait already.
  [[nodiscard]] std::optional<Ticket> enter(uid_t uid);
  [[nodiscard]] bool may_run(uid_t uid, Ticket ticket) const;
  /// It has run, or waits no longer. @return the one that may run in its place
  std::optional<Ticket> leave(uid_t uid, Ticket ticket);

 private:
  Limits limits_;
  Ticket last_ = 0;
  /// In the order of their arrival: the first `at_once` run.
  std::map<uid_t, std::deque<Ticket>> of_users_;
};

/// Lets trials wait for their turns.
class TrialTurns {
 public:
  /// Held while a trial runs, and while what it started can't be ended.
  using Turn = std::shared_ptr<void>;
  explicit TrialTurns(TrialQueue::Limits limits = {});

  /// @return exhausted: too many of the user wait, or the turn took longer than `limit`;
  ///   unavailable: the caller has gone
  boost::asio::awaitable<Result<Turn>> wait(uid_t uid, std::shared_ptr<CallerLink> caller,
                                            std::chrono::milliseconds limit);

 private:
  struct State {
    TrialQueue queue;
    std::map<TrialQueue::Ticket, boost::asio::steady_timer*> waiting{};  ///< cancelled at their turn
  };
  std::shared_ptr<State> state_;  // a turn may outlive this
};

}  // namespace acc::agent::daemon
