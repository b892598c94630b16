#include "rendezvous/etcd_http.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <limits>
#include <vector>

namespace acc::rendezvous {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kLongestRefusal = 64 * 1024;

/// One connection, with the one timer that ends whatever it waits for.
struct Call : std::enable_shared_from_this<Call> {
  Call(const asio::any_io_executor& executor, bool is_stream)
      : socket{executor}, resolver{executor}, timer{executor}, streams{is_stream} {}

  /// From now on: at `instant` the connection is closed, which ends what is awaited on it.
  void limit(Instant instant) {
    late = false;
    timer.expires_at(instant);
    timer.async_wait([weak = weak_from_this()](error_code error) {
      const auto call = weak.lock();
      // The timer may have been set anew after this was on its way.
      if (error || !call || call->timer.expiry() > clock_now()) return;
      call->late = true;
      call->close();
    });
  }
  void unlimit() { timer.cancel(); }
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
  tcp::resolver resolver;
  asio::steady_timer timer;
  asio::steady_timer* resolving = nullptr;  ///< lives in the coroutine that awaits the name
  bool streams;
  bool late = false;   ///< the limit was reached
  bool ended = false;  ///< from outside
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

/// The look-up runs in a thread of Asio's and can't be hurried: when it's late, its answer is left
/// behind.
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

/// Tries one address after the other; each gets its share of the time that is left, so that one
/// that swallows packets doesn't take it all.
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

using HttpRequest = http::request<http::string_body>;

asio::awaitable<Result<void>> send(CallPtr call, EtcdHttp::Request request) {
  auto connected = co_await connect(call, request.endpoint, request.deadline);
  if (!connected) co_return connected.error();
  HttpRequest message{http::verb::post, request.path, 11};
  const bool v6 = request.endpoint.host.find(':') != std::string::npos;
  message.set(http::field::host, (v6 ? '[' + request.endpoint.host + ']' : request.endpoint.host) +
                                     ':' + std::to_string(request.endpoint.port));
  message.set(http::field::content_type, "application/json");
  message.set(http::field::connection, "close");
  message.body() = std::move(request.body);
  message.prepare_payload();
  const Instant began = clock_now();
  const auto [error, bytes] = co_await http::async_write(call->socket, message, kResult);
  if (error) co_return failure(*call, began, "send", error);
  co_return Result<void>{};
}

asio::awaitable<Result<HttpReply>> do_post(CallPtr call, EtcdHttp::Request request,
                                           std::size_t longest) {
  const Instant began = clock_now();
  const auto sent = co_await send(call, std::move(request));
  if (!sent) co_return sent.error();
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(longest);
  const auto [error, bytes] = co_await http::async_read(call->socket, buffer, parser, kResult);
  if (error) co_return failure(*call, began, "read", error);
  call->end();
  co_return HttpReply{parser.get().result_int(), std::move(parser.get().body())};
}

asio::awaitable<Result<HttpReply>> do_stream(CallPtr call, EtcdHttp::Request request,
                                             EtcdHttp::Piece piece) {
  const Instant began = clock_now();
  const auto sent = co_await send(call, std::move(request));
  if (!sent) co_return sent.error();
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  while (!parser.is_done()) {
    const auto [error, bytes] =
        co_await http::async_read_some(call->socket, buffer, parser, kResult);
    if (error) co_return failure(*call, began, "read", error);
    std::string& body = parser.get().body();
    if (parser.is_header_done() && parser.get().result() != http::status::ok) {
      if (body.size() > kLongestRefusal) break;  // enough to know what it says
      continue;
    }
    if (body.empty()) continue;
    call->unlimit();
    const bool goes_on = piece(body);
    body.clear();  // else a stream would grow for ever
    if (!goes_on) co_return Error{Errc::unavailable, "given up"};
  }
  if (parser.get().result() == http::status::ok)
    co_return Error{Errc::unavailable, "read: the stream was ended"};
  co_return HttpReply{parser.get().result_int(), std::move(parser.get().body())};
}

}  // namespace

std::string to_string(const EtcdEndpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return "http://" + (v6 ? '[' + endpoint.host + ']' : endpoint.host) + ':' +
         std::to_string(endpoint.port);
}

struct EtcdHttp::State {
  explicit State(asio::any_io_executor e) : executor{std::move(e)} {}
  asio::any_io_executor executor;
  std::vector<std::weak_ptr<Call>> calls;
  bool is_stopped = false;

  CallPtr begin(bool streams) {
    std::erase_if(calls, [](const auto& one) { return one.expired(); });
    auto call = std::make_shared<Call>(executor, streams);
    if (is_stopped) call->ended = true;
    calls.push_back(call);
    return call;
  }
  void end_calls(bool only_streams) {
    for (const auto& one : calls) {
      const auto call = one.lock();
      if (call && (call->streams || !only_streams)) call->end();
    }
  }
};

EtcdHttp::EtcdHttp(asio::any_io_executor executor)
    : state_{std::make_shared<State>(std::move(executor))} {}

EtcdHttp::~EtcdHttp() { stop(); }

asio::awaitable<Result<HttpReply>> EtcdHttp::post(Request request, std::size_t longest) {
  return do_post(state_->begin(false), std::move(request), longest);
}

asio::awaitable<Result<HttpReply>> EtcdHttp::stream(Request request, Piece piece) {
  return do_stream(state_->begin(true), std::move(request), std::move(piece));
}

void EtcdHttp::end_streams() { state_->end_calls(true); }

void EtcdHttp::stop() {
  state_->is_stopped = true;
  state_->end_calls(false);
}

}  // namespace acc::rendezvous
