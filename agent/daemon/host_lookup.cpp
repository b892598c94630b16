#include "agent/daemon/host_lookup.hpp"

#include "common/signals_blocked.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

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

/// Signals are for the daemon's own thread.
bool start_thread(std::function<void()> work) {
  const AllSignalsBlocked blocked;
  try {
    std::thread{std::move(work)}.detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

/// One name that is looked up. Used on the loop alone; its thread only carries it.
struct HostLookups::Question {
  uid_t uid = 0;
  NodeAddress of{};
  asio::steady_timer* timer = nullptr;  ///< of the coroutine that waits; null: none does any more
  bool is_started = false;
  std::optional<HostAddresses> answer{};

  void tell(HostAddresses found) {
    answer = std::move(found);
    if (timer != nullptr) timer->cancel();
  }
};

/// The users' queues and their shares of the threads. Used on the loop, but for `end`.
class HostLookups::Shares : public std::enable_shared_from_this<HostLookups::Shares> {
 public:
  Shares(asio::io_context& io, LookupLimits limits, Resolver resolver)
      : io_{&io}, limits_{limits}, resolver_{std::move(resolver)} {}

  void ask(const std::shared_ptr<Question>& question) {
    users_[question->uid].waiting.push_back(question);
    start_next();
  }
  void forget(const std::shared_ptr<Question>& question) {
    question->timer = nullptr;
    const auto user = users_.find(question->uid);
    if (user == users_.end()) return;
    std::erase(user->second.waiting, question);
    forget_idle(user);
  }
  /// The loop ends: threads that still run report to nothing.
  void close() {
    const std::lock_guard lock{mutex_};
    io_ = nullptr;
  }
  [[nodiscard]] std::size_t share_of(uid_t uid) const {
    return is_operator(uid) ? limits_.of_operator : limits_.of_a_user;
  }

 private:
  struct User {
    std::deque<std::shared_ptr<Question>> waiting;
    std::size_t running = 0;  ///< threads, also those that nothing waits for any more
  };
  using Users = std::map<uid_t, User>;

  [[nodiscard]] bool is_operator(uid_t uid) const { return uid == 0 || uid == limits_.own; }
  [[nodiscard]] bool may_start(uid_t uid, const User& user) const {
    if (user.waiting.empty() || user.running >= share_of(uid) || running_ >= limits_.threads)
      return false;
    return is_operator(uid) || running_of_users_ < limits_.of_users;
  }
  void start_next() {
    for (;;) {
      // Each user in turn, from the one behind the last on.
      auto next = users_.upper_bound(last_);
      for (std::size_t seen = 0; seen < users_.size(); ++seen, ++next) {
        if (next == users_.end()) next = users_.begin();
        if (may_start(next->first, next->second)) break;
      }
      if (next == users_.end()) next = users_.begin();
      if (next == users_.end() || !may_start(next->first, next->second)) return;
      last_ = next->first;
      auto question = std::move(next->second.waiting.front());
      next->second.waiting.pop_front();
      start(std::move(question));
    }
  }
  void start(std::shared_ptr<Question> question) {
    const uid_t uid = question->uid;
    count(uid, 1);
    question->is_started = true;
    const bool is_started =
        start_thread([self = shared_from_this(), question, of = question->of]() mutable {
          auto found = self->resolver_(of);
          self->end(std::move(question), std::move(found));
        });
    if (is_started) return;
    count(uid, -1);
    HostAddresses none;
    none.failed = "no thread can be started for it: try again";
    question->tell(std::move(none));
    forget_idle(users_.find(uid));
  }
  /// On the thread of a look-up.
  void end(std::shared_ptr<Question> question, HostAddresses found) {
    const std::lock_guard lock{mutex_};
    if (io_ == nullptr) return;
    asio::post(*io_, [self = shared_from_this(), question = std::move(question),
                      found = std::move(found)]() mutable {
      self->count(question->uid, -1);
      question->tell(std::move(found));
      self->forget_idle(self->users_.find(question->uid));
      self->start_next();
    });
  }
  void count(uid_t uid, int change) {
    auto& user = users_[uid];
    user.running = user.running + static_cast<std::size_t>(change);
    running_ = running_ + static_cast<std::size_t>(change);
    if (!is_operator(uid)) running_of_users_ = running_of_users_ + static_cast<std::size_t>(change);
  }
  void forget_idle(Users::iterator user) {
    if (user != users_.end() && user->second.running == 0 && user->second.waiting.empty())
      users_.erase(user);
  }

  std::mutex mutex_;
  asio::io_context* io_;  ///< by mutex_
  const LookupLimits limits_;
  const Resolver resolver_;
  Users users_;
  uid_t last_ = 0;  ///< whose look-up was started last
  std::size_t running_ = 0;
  std::size_t running_of_users_ = 0;  ///< of `running_`: not of operators
};

/// In the coroutine's frame: also when it is destroyed while it waits.
class HostLookups::Asker {
 public:
  Asker(std::shared_ptr<Shares> shares, std::shared_ptr<Question> question)
      : shares_{std::move(shares)}, question_{std::move(question)} {}
  ~Asker() { shares_->forget(question_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

 private:
  std::shared_ptr<Shares> shares_;
  std::shared_ptr<Question> question_;
};

HostLookups::HostLookups(asio::io_context& io) : HostLookups{io, {}, ask_system} {}

HostLookups::HostLookups(asio::io_context& io, LookupLimits limits, Resolver resolver)
    : io_{io}, shares_{std::make_shared<Shares>(io, limits, std::move(resolver))} {}

HostLookups::~HostLookups() { shares_->close(); }

asio::awaitable<HostAddresses> HostLookups::find(uid_t uid, NodeAddress of, Instant due) {
  boost::system::error_code not_numeric;
  const auto address = asio::ip::make_address(of.host, not_numeric);
  HostAddresses result;
  if (!not_numeric) {
    result.found.emplace_back(address, of.port);
    co_return result;
  }
  const auto shares = shares_;
  asio::steady_timer timer{io_, due};
  const auto question = std::make_shared<Question>(Question{uid, std::move(of), &timer});
  const Asker asker{shares, question};
  shares->ask(question);
  while (!question->answer && clock_now() < due)
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  if (question->answer) co_return std::move(*question->answer);
  result.failed = question->is_started
                      ? "this node's DNS servers don't answer in time"
                      : "too many names are being looked up, at most " +
                            std::to_string(shares->share_of(uid)) +
                            " at once for one user: do this node's DNS servers answer?";
  co_return result;
}

}  // namespace acc::agent::daemon
