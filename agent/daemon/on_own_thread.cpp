#include "agent/daemon/on_own_thread.hpp"

#include "agent/daemon/descriptor_waits.hpp"
#include "common/duration.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace acc::agent::daemon {

namespace {

constexpr Millis kPlacePause{50};  ///< until it is looked again for a place

using Holder = std::pair<uid_t, HeldUpBy>;

/// The threads for each holder, also those that were left behind.
class Running {
 public:
  bool begin(const Holder& holder) {
    constexpr int kMostOfHolder = 8;
    const std::lock_guard lock{mutex_};
    auto& count = counts_[holder];
    if (count >= kMostOfHolder) return false;
    ++count;
    return true;
  }
  bool may_log(const Holder& holder, Instant now) {
    constexpr auto kEvery = std::chrono::minutes{1};
    constexpr std::size_t kMost = 1024;  // holders that are remembered
    const std::lock_guard lock{mutex_};
    if (logged_.size() >= kMost) logged_.clear();
    const auto [at, is_new] = logged_.emplace(holder, now);
    if (!is_new && now - at->second < kEvery) return false;
    at->second = now;
    return true;
  }
  void end(const Holder& holder) {
    const std::lock_guard lock{mutex_};
    if (--counts_[holder] == 0) counts_.erase(holder);
  }

 private:
  std::mutex mutex_;
  std::map<Holder, int> counts_;
  std::map<Holder, Instant> logged_;
};

// Never destroyed: a thread may end while this process does.
Running& running() {
  static auto* const kRunning = new Running;
  return *kRunning;
}

struct Call {
  UniqueFd done{::eventfd(0, EFD_CLOEXEC)};
  std::atomic<bool> has_ended = false;
};

// Nothing: it can't be run now.
std::shared_ptr<Call> begin(const Holder& holder, const std::function<void()>& work) {
  auto call = std::make_shared<Call>();
  if (!call->done || !running().begin(holder)) return nullptr;
  try {
    std::thread{[holder, call, work] {
      work();
      call->has_ended = true;
      running().end(holder);
      ::eventfd_write(call->done.get(), 1);
    }}.detach();
  } catch (...) {  // no thread or no memory left
    running().end(holder);
    return nullptr;
  }
  return call;
}

bool check_end(const Holder& holder, const Call* call) {
  if (call != nullptr && call->has_ended) return true;
  const auto& [uid, what] = holder;
  if (running().may_log(holder, clock_now()))
    log::warn("user_calls_wait",
              {{"uid", uid},
               {"why", call == nullptr ? "other calls for this user wait, or no thread is left"
                       : what == HeldUpBy::processes ? "a process of it doesn't answer"
                                                     : "the user data base doesn't answer"}});
  return false;
}

}  // namespace

boost::asio::awaitable<bool> on_own_thread(uid_t uid, std::function<void()> work,
                                           std::chrono::milliseconds limit, HeldUpBy what) {
  const Holder holder{uid, what};
  const auto end = clock_now() + limit;
  boost::asio::steady_timer pause{co_await boost::asio::this_coro::executor};
  auto call = begin(holder, work);
  while (!call && clock_now() < end) {
    pause.expires_after(kPlacePause);
    boost::system::error_code ignored;
    co_await pause.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    call = begin(holder, work);
  }
  if (call) {
    UniqueFd copy{::dup(call->done.get())};
    const auto left = std::chrono::duration_cast<Millis>(end - clock_now());
    co_await await_readable(std::move(copy), std::max(left, kPlacePause));
  }
  co_return check_end(holder, call.get());
}

void begin_on_own_thread(uid_t uid, std::function<void()> work) {
  (void)begin({uid, HeldUpBy::processes}, work);
}

bool run_on_own_thread(uid_t uid, std::function<void()> work, std::chrono::milliseconds limit) {
  const auto end = clock_now() + limit;
  const Holder holder{uid, HeldUpBy::processes};
  const auto call = begin(holder, work);
  for (auto left = limit; call && !call->has_ended && left.count() > 0;
       left = std::chrono::duration_cast<Millis>(end - clock_now())) {
    pollfd one{call->done.get(), POLLIN, 0};
    ::poll(&one, 1, static_cast<int>(left.count()));
  }
  return check_end(holder, call.get());
}

}  // namespace acc::agent::daemon
