#include "rendezvous/etcd_http.hpp"

#include "rendezvous/etcd_tls.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <optional>
#include <vector>

namespace acc::rendezvous {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);

/// One connection, and the one timer that limits its current operation.
struct Call : std::enable_shared_from_this<Call> {
  explicit Call(const asio::any_io_executor& executor)
      : socket{executor}, resolver{executor}, timer{executor} {}

  /// Sets the deadline: at `instant` the connection is closed, which ends the pending operation.
  void limit(Instant instant) {
    late = false;
    timer.expires_at(instant);
    timer.async_wait([weak = weak_from_this()](error_code error) {
      const auto call = weak.lock();
      // The timer may have been set again while this was queued.
      if (error || !call || call->timer.expiry() > clock_now()) return;
      call->late = true;
      call->close();
    });
  }
  void end() {
    ended = true;
    timer.cancel();
    resolver.cancel();
    close();
  }
  void close() {
    error_code ignored;
    socket.close(ignored);
    if (resolving != nullptr) resolving->cancel();
  }

  tcp::socket socket;
  std::optional<EtcdTls::Stream> tls;  ///< over the socket
  tcp::resolver resolver;
  asio::steady_timer timer;
  asio::steady_timer* resolving = nullptr;  ///< lives in the coroutine that awaits the name
  bool late = false;                        ///< the limit was reached
  bool ended = false;                       ///< from outside
};

using CallPtr = std::shared_ptr<Call>;

Error failure(const Call& call, const Instant began, std::string_view attempt, error_code error) {
  if (call.ended) return {Errc::unavailable, "given up"};
  if (call.late) {
    const auto took = std::chrono::duration_cast<Millis>(clock_now() - began);
    return {Errc::timed_out, std::string{attempt} + ": no answer within " + describe(took)};
  }
  return {Errc::unavailable, std::string{attempt} + ": " + error.message()};
}

using Addresses = std::vector<tcp::endpoint>;

/// The look-up runs in a thread of Asio and can't be cancelled: a late answer is discarded.
asio::awaitable<Result<Addresses>> resolve(CallPtr call, EtcdEndpoint at) {
  error_code error;
  const auto address = asio::ip::make_address(at.host, error);
  if (!error) co_return Addresses{{address, at.port}};
  struct Answer {
    bool is_here = false;
    error_code error;
    Addresses addresses;
  };
  const auto answer = std::make_shared<Answer>();
  const Instant began = clock_now();
  asio::steady_timer waits{call->socket.get_executor(), Instant::max()};
  call->resolving = &waits;
  call->resolver.async_resolve(
      at.host, std::to_string(at.port),
      [answer, call](error_code failed, const tcp::resolver::results_type& found) {
        answer->is_here = true;
        answer->error = failed;
        for (const auto& one : found) answer->addresses.push_back(one.endpoint());
        if (call->resolving != nullptr) call->resolving->cancel();
      });
  co_await waits.async_wait(kResult);
  call->resolving = nullptr;
  if (!answer->is_here || call->ended || call->late)
    co_return failure(*call, began, "look up '" + at.host + '\'', asio::error::operation_aborted);
  if (answer->error) co_return failure(*call, began, "look up '" + at.host + '\'', answer->error);
  co_return answer->addresses;
}

/// Tries one address after the other; each gets a share of the remaining time, so that one that
/// drops packets doesn't use all of it.
asio::awaitable<Result<void>> connect(CallPtr call, EtcdEndpoint at, Instant deadline) {
  if (call->ended) co_return Error{Errc::unavailable, "given up"};
  call->limit(deadline);
  const auto addresses = co_await resolve(call, at);
  if (!addresses) co_return addresses.error();
  Error last{Errc::unavailable, "connect: the name has no address"};
  for (std::size_t i = 0; i < addresses->size() && !call->ended; ++i) {
    const Instant began = clock_now();
    const auto left = static_cast<std::int64_t>(addresses->size() - i);
    call->limit(began + (deadline - began) / left);
    const auto [error] = co_await call->socket.async_connect((*addresses)[i], kResult);
    if (!error && !call->ended && !call->late) {
      call->limit(deadline);
      error_code ignored;
      call->socket.set_option(tcp::no_delay{true}, ignored);
      co_return Result<void>{};
    }
    last = failure(*call, began, "connect", error);
    call->close();
  }
  co_return last;
}

asio::awaitable<Result<void>> shake_hands(CallPtr call, std::shared_ptr<EtcdTls> tls,
                                          EtcdEndpoint at) {
  call->tls.emplace(call->socket, tls->context());
  if (!EtcdTls::expect(*call->tls, at.host))
    co_return Error{Errc::bad_config, std::string{EtcdTls::kHandshake} +
                                          ": no certificate can be for '" + at.host +
                                          "': correct --rdzv_endpoint"};
  const Instant began = clock_now();
  const auto [error] = co_await call->tls->async_handshake(asio::ssl::stream_base::client, kResult);
  if (!error) co_return Result<void>{};
  if (call->ended || call->late) co_return failure(*call, began, EtcdTls::kHandshake, error);
  co_return tls->explain(*call->tls, at.host, EtcdTls::kHandshake, error);
}

using HttpRequest = http::request<http::string_body>;

HttpRequest message_of(EtcdHttp::Request request) {
  HttpRequest message{http::verb::post, request.path, 11};
  const bool v6 = request.endpoint.host.find(':') != std::string::npos;
  message.set(http::field::host, (v6 ? '[' + request.endpoint.host + ']' : request.endpoint.host) +
                                     ':' + std::to_string(request.endpoint.port));
  message.set(http::field::content_type, "application/json");
  message.set(http::field::connection, "close");
  if (!request.token.empty()) message.set(http::field::authorization, request.token);
  message.body() = std::move(request.body);
  message.prepare_payload();
  return message;
}

struct Exchange {
  error_code error;
  std::string_view attempt;
  HttpReply reply;
};

template <class Stream>
asio::awaitable<Exchange> exchange(Stream& stream, HttpRequest message, std::size_t longest) {
  // A server that refuses the request may have said why before it closed: the answer is read in any
  // case.
  const auto [unsent, bytes] = co_await http::async_write(stream, message, kResult);
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(longest);
  const auto [error, more] = co_await http::async_read(stream, buffer, parser, kResult);
  const bool says_why = error.category() == asio::error::get_ssl_category();
  if (error && unsent && !says_why) co_return Exchange{unsent, "send", {}};
  if (error) co_return Exchange{error, "read", {}};
  co_return Exchange{{}, {}, {parser.get().result_int(), std::move(parser.get().body())}};
}

asio::awaitable<Result<HttpReply>> do_post(CallPtr call, std::shared_ptr<EtcdTls> tls,
                                           EtcdHttp::Request request, std::size_t longest) {
  const Instant began = clock_now();
  const EtcdEndpoint at = request.endpoint;
  auto connected = co_await connect(call, at, request.deadline);
  if (connected && at.is_tls) connected = co_await shake_hands(call, tls, at);
  if (!connected) {
    call->end();
    co_return connected.error();
  }
  HttpRequest message = message_of(std::move(request));
  Exchange done;  // GCC 12 destroys the result of a co_await within ?: twice
  if (at.is_tls) {
    done = co_await exchange(*call->tls, std::move(message), longest);
  } else {
    done = co_await exchange(call->socket, std::move(message), longest);
  }
  const bool is_outside = call->ended || call->late;
  if (!done.error) {
    call->end();
    co_return std::move(done.reply);
  }
  Error error = failure(*call, began, done.attempt, done.error);
  if (at.is_tls && !is_outside) error = tls->explain(*call->tls, at.host, done.attempt, done.error);
  if (!at.is_tls && !is_outside && done.error == http::error::end_of_stream)
    error = {Errc::unavailable,
             "it closed the connection without an answer: if that etcd speaks "
             "TLS, write https:// in --rdzv_endpoint"};
  call->end();
  co_return error;
}

}  // namespace

std::string to_string(const EtcdEndpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (endpoint.is_tls ? "https://" : "http://") +
         (v6 ? '[' + endpoint.host + ']' : endpoint.host) + ':' + std::to_string(endpoint.port);
}

struct EtcdHttp::State {
  State(asio::any_io_executor e, std::shared_ptr<EtcdTls> t)
      : executor{std::move(e)}, tls{std::move(t)} {}
  asio::any_io_executor executor;
  std::shared_ptr<EtcdTls> tls;
  std::vector<std::weak_ptr<Call>> calls;
  bool is_stopped = false;

  CallPtr begin() {
    std::erase_if(calls, [](const auto& one) { return one.expired(); });
    auto call = std::make_shared<Call>(executor);
    if (is_stopped) call->ended = true;
    calls.push_back(call);
    return call;
  }
  void end_calls() {
    for (const auto& one : calls) {
      if (const auto call = one.lock()) call->end();
    }
  }
};

EtcdHttp::EtcdHttp(asio::any_io_executor executor, std::shared_ptr<EtcdTls> tls)
    : state_{std::make_shared<State>(std::move(executor), std::move(tls))} {}

EtcdHttp::~EtcdHttp() { stop(); }

asio::awaitable<Result<HttpReply>> EtcdHttp::post(Request request, std::size_t longest) {
  return do_post(state_->begin(), state_->tls, std::move(request), longest);
}

void EtcdHttp::stop() {
  state_->is_stopped = true;
  state_->end_calls();
}

}  // namespace acc::rendezvous
