#include "agent/daemon/descriptor_waits.hpp"

#include "common/poll_now.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <memory>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using Descriptor = asio::posix::stream_descriptor;

namespace {

// Closes the descriptor when the time is over: what waits for it then fails.
class Limited {
 public:
  Limited(const asio::any_io_executor& executor, UniqueFd fd, std::chrono::milliseconds limit)
      : state_{std::make_shared<State>(executor)}, timer_{executor} {
    state_->descriptor.assign(fd.get(), refused_);
    if (refused_)
      unwatched_ = std::move(fd);
    else
      (void)fd.release();
    timer_.expires_after(limit);
    timer_.async_wait([state = state_](boost::system::error_code cancelled) {
      if (cancelled) return;
      state->is_late = true;
      boost::system::error_code ignored;
      state->descriptor.close(ignored);
    });
  }
  [[nodiscard]] Descriptor& descriptor() { return state_->descriptor; }
  [[nodiscard]] bool is_late() const { return state_->is_late; }
  /// Why the loop can't watch it.
  [[nodiscard]] const boost::system::error_code& refused() const { return refused_; }
  [[nodiscard]] const UniqueFd& unwatched() const { return unwatched_; }

 private:
  struct State {
    explicit State(const asio::any_io_executor& executor) : descriptor{executor} {}
    Descriptor descriptor;
    bool is_late = false;
  };
  std::shared_ptr<State> state_;
  asio::steady_timer timer_;
  boost::system::error_code refused_;
  UniqueFd unwatched_;
};

}  // namespace

awaitable<Result<std::string>> ask_agent(UniqueFd socket, std::string request,
                                         std::chrono::milliseconds limit) {
  constexpr std::size_t kLongest = std::size_t{4} << 20U;
  Limited peer{co_await asio::this_coro::executor, std::move(socket), limit};
  const auto failed = [&](const boost::system::error_code& error) {
    if (peer.is_late())
      return Error{Errc::timed_out,
                   "the job's agent didn't answer within " + std::to_string(limit.count()) + " ms"};
    return Error{Errc::unavailable, "the job's agent closed the connection: " + error.message()};
  };
  if (peer.refused())
    co_return Error{Errc::exhausted, "the job's agent can't be asked: " + peer.refused().message()};
  request += '\n';
  boost::system::error_code error;
  co_await asio::async_write(peer.descriptor(), asio::buffer(request),
                             asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return failed(error);
  std::string reply;
  char chunk[4096];
  for (;;) {
    const auto n = co_await peer.descriptor().async_read_some(
        asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
    const auto searched = reply.size();
    reply.append(chunk, n);
    const auto line_end = reply.find('\n', searched);
    if (line_end != std::string::npos) co_return reply.substr(0, line_end);
    if (error) co_return failed(error);
    if (reply.size() > kLongest)
      co_return Error{Errc::malformed, "the job's agent answered with more than 4 MiB"};
  }
}

awaitable<Result<std::string>> read_to_end(UniqueFd fd, std::size_t most,
                                           std::chrono::milliseconds limit, std::string what) {
  Limited source{co_await asio::this_coro::executor, std::move(fd), limit};
  if (source.refused())
    co_return Error{Errc::exhausted, "wait for " + what + ": " + source.refused().message()};
  boost::system::error_code error;
  std::string text;
  char chunk[4096];
  while (!error) {
    const auto n = co_await source.descriptor().async_read_some(
        asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
    text.append(chunk, n);
    if (text.size() > most)
      co_return Error{Errc::malformed, what + ": more than " + std::to_string(most) + " bytes"};
  }
  if (source.is_late()) co_return Error{Errc::timed_out, what};
  co_return text;
}

awaitable<bool> await_readable(UniqueFd fd, std::chrono::milliseconds limit) {
  Limited source{co_await asio::this_coro::executor, std::move(fd), limit};
  boost::system::error_code error;
  asio::steady_timer pause{co_await asio::this_coro::executor};
  while (source.refused()) {
    if (is_ready(source.unwatched().get(), POLLIN)) co_return true;
    if (source.is_late()) co_return false;
    pause.expires_after(std::min<std::chrono::milliseconds>(limit, std::chrono::milliseconds{50}));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (!source.unwatched()) co_return false;
  }
  do {
    co_await source.descriptor().async_wait(Descriptor::wait_read,
                                            asio::redirect_error(asio::use_awaitable, error));
  } while (!error && !source.is_late() && !is_ready(source.descriptor().native_handle(), POLLIN));
  co_return !source.is_late();
}

}  // namespace acc::agent::daemon
