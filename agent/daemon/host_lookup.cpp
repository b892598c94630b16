#include "agent/daemon/host_lookup.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <netdb.h>
#include <sys/socket.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr int kMostThreads = 32;

HostAddresses ask_system(const NodeAddress& of) {
  HostAddresses answer;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  int failed = ::getaddrinfo(of.host.c_str(), nullptr, &hints, &list);
  if (failed != 0) answer.failed = ::gai_strerror(failed);
  for (const auto* one = list; one != nullptr; one = one->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.resize(one->ai_addrlen);
    endpoint.port(of.port);
    answer.found.push_back(endpoint);
  }
  if (list != nullptr) ::freeaddrinfo(list);
  return answer;
}

/// Between a waiting coroutine and its thread, which may outlive it, and the loop.
struct Question {
  std::mutex mutex;
  asio::io_context* io = nullptr;  ///< null: nothing waits any more
  asio::steady_timer* timer = nullptr;
  std::optional<HostAddresses> answer;
};

/// In the coroutine's frame: also when it is destroyed while it waits.
class Asker {
 public:
  explicit Asker(std::shared_ptr<Question> question) : question_{std::move(question)} {}
  ~Asker() {
    const std::lock_guard lock{question_->mutex};
    question_->io = nullptr;
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

 private:
  std::shared_ptr<Question> question_;
};

void answer(const std::shared_ptr<Question>& question, HostAddresses found) {
  const std::lock_guard lock{question->mutex};
  if (question->io == nullptr) return;
  question->answer = std::move(found);
  asio::post(*question->io, [question] {
    const std::lock_guard inner{question->mutex};
    if (question->io != nullptr) question->timer->cancel();
  });
}

/// Signals are for the daemon's own thread.
bool start_thread(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool is_started = true;
  try {
    std::thread{std::move(work)}.detach();
  } catch (const std::system_error&) {
    is_started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_started;
}

}  // namespace

/// A place in the queue for a thread, in the coroutine's frame.
class HostLookups::Turn {
 public:
  Turn(asio::io_context& io, std::shared_ptr<Queue> queue, Instant due)
      : timer{io, due}, queue_{std::move(queue)} {
    queue_->push_back(this);
  }
  ~Turn() { leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void leave() { std::erase(*queue_, this); }
  static void give_next(Queue& queue) {
    if (queue.empty()) return;
    Turn* const next = queue.front();
    next->leave();
    next->timer.cancel();
  }

  asio::steady_timer timer;

 private:
  std::shared_ptr<Queue> queue_;
};

/// Whatever its end: the next one may find a thread free.
class HostLookups::Asking {
 public:
  explicit Asking(std::shared_ptr<Queue> queue) : queue_{std::move(queue)} {}
  ~Asking() { Turn::give_next(*queue_); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::shared_ptr<Queue> queue_;
};

asio::awaitable<HostAddresses> HostLookups::find(NodeAddress of, Instant due) {
  boost::system::error_code not_numeric;
  const auto address = asio::ip::make_address(of.host, not_numeric);
  HostAddresses result;
  if (!not_numeric) {
    result.found.emplace_back(address, of.port);
    co_return result;
  }
  result.failed = "too many names are being looked up: do this node's DNS servers answer?";
  while (running_->load() >= kMostThreads) {
    Turn turn{io_, queue_, due};
    co_await turn.timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (clock_now() >= due) co_return result;
  }
  const Asking asking{queue_};
  asio::steady_timer timer{io_, due};
  const auto question = std::make_shared<Question>();
  question->io = &io_;
  question->timer = &timer;
  const Asker asker{question};
  running_->fetch_add(1);
  const bool is_started = start_thread([question, of, running = running_] {
    auto found = ask_system(of);
    running->fetch_sub(1);  // before the one that waits for this thread hears of it
    answer(question, std::move(found));
  });
  if (!is_started) {
    running_->fetch_sub(1);
    co_return result;
  }
  for (;;) {
    {
      const std::lock_guard lock{question->mutex};
      if (question->answer) co_return std::move(*question->answer);
    }
    if (clock_now() >= due) break;
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  result.failed = "this node's DNS servers don't answer in time";
  co_return result;
}

}  // namespace acc::agent::daemon
