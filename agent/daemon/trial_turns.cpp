#include "agent/daemon/trial_turns.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;

std::optional<TrialQueue::Ticket> TrialQueue::enter(uid_t uid) {
  auto& tickets = of_users_[uid];
  if (tickets.size() >= limits_.at_once + limits_.waiting) return std::nullopt;
  tickets.push_back(++last_);
  return last_;
}

bool TrialQueue::may_run(uid_t uid, Ticket ticket) const {
  const auto found = of_users_.find(uid);
  if (found == of_users_.end()) return false;
  const auto& tickets = found->second;
  return std::ranges::find(tickets, ticket) - tickets.begin() <
         static_cast<std::ptrdiff_t>(std::min(limits_.at_once, tickets.size()));
}

std::optional<TrialQueue::Ticket> TrialQueue::leave(uid_t uid, Ticket ticket) {
  const auto found = of_users_.find(uid);
  if (found == of_users_.end()) return std::nullopt;
  auto& tickets = found->second;
  const bool ran = may_run(uid, ticket);
  std::erase(tickets, ticket);
  if (tickets.empty()) {
    of_users_.erase(found);
    return std::nullopt;
  }
  if (!ran || tickets.size() < limits_.at_once) return std::nullopt;
  return tickets[limits_.at_once - 1];
}

TrialTurns::TrialTurns(TrialQueue::Limits limits)
    : state_{std::make_shared<State>(State{TrialQueue{limits}})} {}

awaitable<Result<TrialTurns::Turn>> TrialTurns::wait(uid_t uid, std::shared_ptr<CallerLink> caller,
                                                     std::chrono::milliseconds limit) {
  const Error gone{Errc::unavailable, "the caller closed its connection"};
  if (caller && caller->is_closed()) co_return gone;
  const auto ticket = state_->queue.enter(uid);
  if (!ticket)
    co_return Error{Errc::exhausted,
                    "too many submissions of this user are being checked at once: try again later"};
  const Turn turn{state_.get(), [state = state_, uid, ticket = *ticket](void*) {
                    const auto next = state->queue.leave(uid, ticket);
                    if (!next) return;
                    const auto waiting = state->waiting.find(*next);
                    if (waiting != state->waiting.end()) waiting->second->cancel();
                  }};
  if (state_->queue.may_run(uid, *ticket)) co_return turn;
  const auto state = state_;
  asio::steady_timer timer{co_await asio::this_coro::executor, limit};
  {
    // Also where the loop ends before the turn: other turns then end, too.
    const auto forget = [state, caller, ticket = *ticket](void*) {
      if (caller) caller->when_closed(nullptr);
      state->waiting.erase(ticket);
    };
    const std::shared_ptr<void> listed{&timer, forget};
    state->waiting[*ticket] = &timer;
    if (caller) caller->when_closed([&timer] { timer.cancel(); });
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (caller && caller->is_closed()) co_return gone;
  if (state->queue.may_run(uid, *ticket)) co_return turn;
  co_return Error{Errc::exhausted,
                  "other submissions of this user are still being checked: try again later"};
}

}  // namespace acc::agent::daemon
