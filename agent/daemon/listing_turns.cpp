#include "agent/daemon/listing_turns.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace acc::agent::daemon {

namespace asio = boost::asio;

asio::awaitable<ListingTurns::Turn> ListingTurns::wait(bool is_root) {
  const auto watch = alive_.watch();
  if (auto& queue = is_root ? root_waits_ : users_wait_; is_full(is_root) || !queue.empty()) {
    const auto turn = std::make_shared<asio::steady_timer>(io_, Instant::max());
    queue.push_back(turn);
    co_await turn->async_wait(asio::as_tuple(asio::use_awaitable));
    if (!watch.is_alive()) co_return nullptr;
  } else {
    ++running_;
    if (!is_root) ++of_users_;
  }
  co_return Turn{this, [this, watch, is_root](void*) {
                   if (watch.is_alive()) end(is_root);
                 }};
}

void ListingTurns::end(bool is_root) {
  --running_;
  if (!is_root) --of_users_;
  give();
}

// Counted here, so that none that asks meanwhile gets ahead.
void ListingTurns::give() {
  for (const bool is_root : {true, false}) {
    auto& queue = is_root ? root_waits_ : users_wait_;
    while (!queue.empty() && !is_full(is_root)) {
      ++running_;
      if (!is_root) ++of_users_;
      queue.front()->cancel();
      queue.pop_front();
    }
  }
}

}  // namespace acc::agent::daemon
