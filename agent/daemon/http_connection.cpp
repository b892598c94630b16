#include "agent/daemon/http_connection.hpp"

#include "agent/daemon/http_parser.hpp"
#include "common/alive.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 4 * 1024;  ///< held by each connection, also by an idle one
constexpr std::size_t kShortReply = 16 * 1024;
constexpr Millis kReplyTime{30'000};  ///< for a client to take a reply that isn't streamed

/// Lets one coroutine wait for whatever else happens on the loop.
class Wakeup {
 public:
  explicit Wakeup(const asio::any_io_executor& executor) : timer_{executor} {}
  void notify() {
    is_pending_ = true;
    timer_.cancel();
  }
  asio::awaitable<void> wait(Instant until) {
    if (!is_pending_) {
      timer_.expires_at(until);
      co_await timer_.async_wait(kResult);
    }
    is_pending_ = false;
  }

 private:
  asio::steady_timer timer_;
  bool is_pending_ = false;
};

/// A share of the memory for bodies.
class BodyShare {
 public:
  BodyShare(std::shared_ptr<HttpShared> shared, uid_t uid, std::size_t bytes)
      : shared_{std::move(shared)},
        uid_{uid},
        bytes_{bytes},
        is_granted_{shared_->quota.take_body(uid, bytes)} {}
  ~BodyShare() {
    if (is_granted_) shared_->quota.give_body(uid_, bytes_);
  }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  [[nodiscard]] bool is_granted() const { return is_granted_; }

 private:
  std::shared_ptr<HttpShared> shared_;
  uid_t uid_;
  std::size_t bytes_;
  bool is_granted_;
};

/// A share of the memory for replies, until the client has taken this one. Short ones are free.
class ReplyShare {
 public:
  ReplyShare(HttpShared& shared, uid_t uid, std::size_t bytes)
      : shared_{shared},
        uid_{uid},
        bytes_{counted(bytes)},
        is_granted_{bytes_ == 0 || shared_.quota.take_reply(uid, bytes_)} {}
  ~ReplyShare() {
    if (is_granted_ && bytes_ > 0) shared_.quota.give_reply(uid_, bytes_);
  }
  ReplyShare(const ReplyShare&) = delete;
  ReplyShare& operator=(const ReplyShare&) = delete;
  [[nodiscard]] bool is_granted() const { return is_granted_; }
  /// The reply has been made. No longer granted if it is larger than was thought, and too large.
  void change_to(std::size_t bytes) {
    bytes = counted(bytes);
    if (!is_granted_ || bytes == bytes_) return;
    if (bytes_ > 0) shared_.quota.give_reply(uid_, bytes_);
    bytes_ = bytes;
    is_granted_ = bytes_ == 0 || shared_.quota.take_reply(uid_, bytes_);
  }

 private:
  static std::size_t counted(std::size_t bytes) { return bytes > kShortReply ? bytes : 0; }

  HttpShared& shared_;  // the connection holds it
  uid_t uid_;
  std::size_t bytes_;
  bool is_granted_;
};

/// A handler's answer, which may arrive after the connection has given up waiting for it.
struct PendingReply {
  explicit PendingReply(const asio::any_io_executor& executor) : wakeup{executor} {}
  Wakeup wakeup;
  std::optional<HttpReply> reply;
};

struct Got {
  std::optional<HttpRequest> request;
  HttpRefusal refusal;  ///< status 0, and no request: the connection has ended
  std::shared_ptr<BodyShare> share;
  Instant deadline;
};

HttpRefusal late(std::string_view what, Millis limit) {
  return {408, std::string{what} + " weren't complete within " + describe(limit)};
}

}  // namespace

asio::awaitable<ReplyTurns::Turn> ReplyTurns::wait(uid_t uid) {
  const auto executor = co_await asio::this_coro::executor;
  const auto [queue, is_first] = queues_.try_emplace(uid);
  if (is_first) {
    // Also where nobody waits: requests that arrived meanwhile are read before this reply is made.
    co_await asio::post(executor, asio::use_awaitable);
  } else {
    const auto turn = std::make_shared<asio::steady_timer>(executor, Instant::max());
    queue->second.push_back(turn);
    co_await turn->async_wait(kResult);
  }
  co_return Turn{this, [this, uid](void*) { end(uid); }};
}

void ReplyTurns::end(uid_t uid) {
  const auto queue = queues_.find(uid);
  if (queue->second.empty()) {
    queues_.erase(queue);
    return;
  }
  queue->second.front()->cancel();
  queue->second.pop_front();
}

struct HttpConnection::State : std::enable_shared_from_this<HttpConnection::State> {
  State(const asio::any_io_executor& on, std::unique_ptr<ByteStream> bytes, Principal principal,
        std::shared_ptr<HttpShared> common)
      : executor{on},
        stream{std::move(bytes)},
        who{principal},
        shared{std::move(common)},
        timer{on},
        wakeup{on} {}

  asio::any_io_executor executor;
  std::unique_ptr<ByteStream> stream;
  Principal who;
  std::shared_ptr<HttpShared> shared;
  asio::steady_timer timer;
  Wakeup wakeup;                    ///< of the streamed body
  std::function<void()> on_closed;  ///< of its writer
  std::string input;                ///< read, and not yet parsed
  bool is_late = false;
  bool is_gone = false;
  bool is_stopping = false;
  bool is_idle = false;       ///< between two requests
  bool is_replying = false;
  bool is_changing = false;   ///< carries out what isn't a GET
  bool has_replied = false;   ///< to any request
  bool is_streaming = false;  ///< a reply's body
  bool gives_way = false;     ///< closed for another user's connection
  Instant idle_since{};
  std::shared_ptr<PendingReply> awaited;    ///< of the handler
  std::shared_ptr<CallerLink> caller_link;  ///< of the request that is being carried out
  Alive alive;

  /// At `instant` the pending read or write ends.
  void limit(Instant instant) {
    is_late = false;
    timer.expires_at(instant);
    timer.async_wait(alive.bind([this](boost::system::error_code error) {
      if (error || timer.expiry() > clock_now()) return;  // set again while this was queued
      is_late = true;
      stream->cancel();
    }));
  }
  void unlimited() {
    is_late = false;
    timer.cancel();
  }

  asio::awaitable<void> run();
  asio::awaitable<Got> read_request();
  asio::awaitable<HttpRefusal> grant_body(RequestParser& parser, Got& got);
  asio::awaitable<bool> read_more();
  asio::awaitable<HttpReply> carry_out(Got got);
  asio::awaitable<bool> send(HttpReply reply, bool is_head, bool is_http_1_0, bool keeps_alive);
  asio::awaitable<void> linger();
  void stop();
  void give_way();
  void tell_closed() {
    wakeup.notify();
    if (const auto told = std::exchange(on_closed, nullptr)) told();
  }
};

namespace {

/// Writes a streamed body, as chunks where the client understands them.
template <class State>
class StreamedBody final : public BodyWriter {
 public:
  StreamedBody(std::shared_ptr<State> state, bool is_chunked)
      : state_{std::move(state)}, is_chunked_{is_chunked} {}

  asio::awaitable<bool> write(std::string_view bytes) override {
    if (!is_open()) co_return false;
    if (bytes.empty()) co_return true;
    bool is_written = false;
    if (is_chunked_) {
      std::array<char, 24> head{};
      const auto n = std::snprintf(head.data(), head.size(), "%zx\r\n", bytes.size());
      frame_.assign(head.data(), static_cast<std::size_t>(n)).append(bytes).append("\r\n");
      is_written = co_await state_->stream->write(frame_);
    } else {
      is_written = co_await state_->stream->write(bytes);
    }
    is_broken_ = is_broken_ || !is_written;
    co_return is_written;
  }
  [[nodiscard]] bool is_open() const override {
    return !state_->is_gone && !state_->is_stopping && !is_broken_;
  }
  asio::awaitable<void> wait(Instant until) override { return state_->wakeup.wait(until); }
  void notify() override { state_->wakeup.notify(); }
  void when_closed(std::function<void()> told) override {
    if (!is_open()) return told();
    state_->on_closed = std::move(told);
  }
  void break_off() override { is_broken_ = true; }

 private:
  std::shared_ptr<State> state_;
  bool is_chunked_;
  bool is_broken_ = false;
  std::string frame_;
};

}  // namespace

asio::awaitable<bool> HttpConnection::State::read_more() {
  if (input.empty()) input = std::string{};  // what a body took is given back
  if (is_late) co_return false;              // reached while nothing was pending
  std::array<char, kReadBytes> chunk;
  const auto n = co_await stream->read_some(chunk);
  input.append(chunk.data(), n);
  co_return n > 0;
}

// The body's memory is granted before it is read, and the client that waits for it is told.
asio::awaitable<HttpRefusal> HttpConnection::State::grant_body(RequestParser& parser, Got& got) {
  const auto& request = parser.request();
  const bool needs_body = request.method == "PUT" || request.method == "PATCH";
  if (needs_body && !parser.has_length())
    co_return HttpRefusal{411, "say how long the body is: Content-Length"};
  const auto bytes = parser.body_reserve();
  if (bytes == 0) co_return HttpRefusal{};
  got.share = std::make_shared<BodyShare>(shared, who.quota_owner(), bytes);
  if (!got.share->is_granted())
    co_return HttpRefusal{503, "too many requests with large bodies at once: try again later"};
  if (parser.expects_continue()) co_await stream->write("HTTP/1.1 100 Continue\r\n\r\n");
  co_return HttpRefusal{};
}

asio::awaitable<Got> HttpConnection::State::read_request() {
  Got got;
  const auto& times = shared->times;
  if (input.empty()) {
    is_idle = true;
    idle_since = clock_now();
    limit(clock_now() + times.idle);
    const bool has_more = co_await read_more();
    is_idle = false;
    if (!has_more) co_return got;  // it ended the connection, or was idle for too long
  }
  const Instant began = clock_now();
  got.deadline = began + times.request;
  RequestParser parser;
  bool has_header = false;
  limit(began + times.header);
  for (;;) {
    std::size_t consumed = 0;
    const auto step = parser.feed(input, consumed);
    input.erase(0, consumed);
    if (step == RequestParser::Step::refused) {
      got.refusal = parser.refusal();
      break;
    }
    if (step == RequestParser::Step::done) {
      got.request = std::move(parser.request());
      break;
    }
    if (step == RequestParser::Step::has_header) {
      has_header = true;
      limit(got.deadline);
      got.refusal = co_await grant_body(parser, got);
      if (got.refusal.status != 0) break;
      continue;
    }
    const bool has_more = co_await read_more();
    if (has_more) continue;
    if (is_late)
      got.refusal = has_header ? late("request and body", times.request)
                               : late("the request's headers", times.header);
    break;  // or the client ended its side in the middle
  }
  unlimited();
  co_return got;
}

asio::awaitable<HttpReply> HttpConnection::State::carry_out(Got got) {
  // Where the daemon was stopped or stuck meanwhile, its user knows of no answer, and may have
  // asked again.
  const bool may_change = got.request->method != "GET" && got.request->method != "HEAD";
  if (gives_way || (may_change && stream->is_gone()))
    co_return error_reply({503, "not begun: who asked had gone"});
  is_changing = may_change;
  auto pending = std::make_shared<PendingReply>(executor);
  awaited = pending;
  // The method and target are kept for the log.
  const std::string asked = got.request->method + ' ' + got.request->target;
  Principal asking = who;
  asking.caller = std::make_shared<CallerLink>();
  caller_link = asking.caller;
  stream->watch([caller = asking.caller] { caller->close(); });
  asio::co_spawn(executor, shared->handler(std::move(asking), std::move(*got.request)),
                 [pending, share = got.share, asked](std::exception_ptr failed, HttpReply reply) {
                   if (failed) {
                     log::error("request_failed",
                                {{"request", printable(asked)}, {"why", what_of(failed)}});
                     reply = error_reply({500, "an error of the daemon; its log says more"});
                   }
                   pending->reply = std::move(reply);
                   pending->wakeup.notify();
                 });
  // A call can't be taken back halfway: it goes on, and what it changes can be looked up. What has
  // changed nothing yet ends with its caller.
  while (!pending->reply && !gives_way && clock_now() < got.deadline)
    co_await pending->wakeup.wait(got.deadline);
  awaited = nullptr;
  caller_link = nullptr;
  is_changing = false;
  stream->cancel();  // the watch
  if (pending->reply) co_return std::move(*pending->reply);
  auto reply = error_reply({503, "not done within " + describe(shared->times.request) +
                                     ", and still in progress: ask for the state later"});
  reply.closes = true;
  co_return reply;
}

asio::awaitable<bool> HttpConnection::State::send(HttpReply reply, bool is_head, bool is_http_1_0,
                                                  bool keeps_alive) {
  is_replying = has_replied = true;
  const bool is_streamed = static_cast<bool>(reply.stream);
  const bool is_chunked = is_streamed && !is_http_1_0;
  keeps_alive = keeps_alive && (!is_streamed || is_chunked);
  ReplyTurns::Turn turn;
  if (reply.late_body) turn = co_await shared->turns.wait(who.quota_owner());
  ReplyShare share{*shared, who.quota_owner(),
                   reply.late_body ? reply.late_bytes : reply.body.size()};
  if (share.is_granted() && reply.late_body) {
    reply.body = reply.late_body();
    share.change_to(reply.body.size());
  }
  reply.late_body = nullptr;
  turn.reset();
  if (!share.is_granted()) {
    reply = error_reply({503,
                         "too many replies wait for their readers: read them, or try again "
                         "later"});
    reply.headers.emplace_back("Retry-After", "1");
  }
  const auto size = is_streamed ? std::nullopt : std::optional{reply.body.size()};
  std::string out = reply_head(reply, size, is_chunked, keeps_alive);
  if (!is_streamed && !is_head) out += reply.body;
  reply.body = std::string{};
  limit(clock_now() + kReplyTime);
  bool is_sent = co_await stream->write(out);
  unlimited();
  if (!is_sent || !is_streamed || is_head) co_return is_sent&& keeps_alive;
  out = std::string{};
  is_streaming = true;
  // No deadline: a reader may pause (less, Ctrl-S) for as long as it keeps the connection.
  stream->watch(alive.bind([this] {
    is_gone = true;
    tell_closed();
    stream->cancel();
  }));
  const auto body = std::make_shared<StreamedBody<State>>(shared_from_this(), is_chunked);
  co_await reply.stream(body);
  is_streaming = false;
  on_closed = nullptr;
  const bool is_whole = body->is_open();
  if (is_whole && is_chunked) is_sent = co_await stream->write("0\r\n\r\n");
  stream->cancel();  // the watch
  co_return is_whole&& is_sent&& keeps_alive;
}

// Closing a socket with unread bytes would make the kernel discard our last words at the client.
asio::awaitable<void> HttpConnection::State::linger() {
  stream->end_writing();
  limit(clock_now() + shared->times.linger);
  std::array<char, kReadBytes> ignored;
  while (!is_late && !is_stopping) {
    const auto n = co_await stream->read_some(ignored);
    if (n == 0) break;
  }
}

asio::awaitable<void> HttpConnection::State::run() {
  const auto self = shared_from_this();
  while (!is_stopping) {
    auto got = co_await read_request();
    if (!got.request) {
      if (got.refusal.status == 0) break;
      auto refusal = error_reply(got.refusal);
      co_await send(std::move(refusal), false, false, false);
      co_await linger();
      break;
    }
    const bool is_head = got.request->method == "HEAD";
    const bool is_http_1_0 = got.request->is_http_1_0;
    const bool asks_to_keep = got.request->keeps_alive;
    auto reply = co_await carry_out(std::move(got));
    const bool keeps_alive = asks_to_keep && !reply.closes && !is_stopping;
    const bool goes_on = co_await send(std::move(reply), is_head, is_http_1_0, keeps_alive);
    is_replying = false;
    if (!goes_on) break;
  }
  timer.cancel();
  stream->close();
}

void HttpConnection::State::stop() {
  is_stopping = true;
  tell_closed();
  if (is_idle || is_streaming) stream->cancel();
}

void HttpConnection::State::give_way() {
  if (gives_way) return;
  gives_way = is_stopping = is_gone = true;
  // Behind a reply these words would be taken for the next one's.
  if (!is_replying && (!is_idle || !has_replied)) {
    auto reply = error_reply({503,
                              "too many connections, and this user has most of them: this one was "
                              "ended for another user's; close some, or try again later"});
    reply.headers.emplace_back("Retry-After", "1");
    stream->try_write(reply_head(reply, reply.body.size(), false, false) + reply.body);
  }
  if (caller_link) caller_link->close();
  if (awaited) awaited->wakeup.notify();
  tell_closed();
  stream->close();
}

HttpConnection::HttpConnection(asio::any_io_executor executor, std::unique_ptr<ByteStream> stream,
                               Principal who, std::shared_ptr<HttpShared> shared)
    : state_{std::make_shared<State>(executor, std::move(stream), who, std::move(shared))} {}

HttpConnection::~HttpConnection() = default;

asio::awaitable<void> HttpConnection::run() { return state_->run(); }
void HttpConnection::stop() { state_->stop(); }
void HttpConnection::give_way() { state_->give_way(); }
bool HttpConnection::is_changing() const { return state_->is_changing; }
std::optional<Instant> HttpConnection::idle_since() const {
  return state_->is_idle ? std::optional{state_->idle_since} : std::nullopt;
}

HttpReply error_reply(const HttpRefusal& refusal) {
  HttpReply reply;
  reply.status = refusal.status;
  std::string text;
  // printable() leaves nothing else to escape.
  for (const char c : printable(refusal.what, 2000)) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  reply.body = R"({"error": ")" + text + R"(", "code": ")" +
               std::string{error_code_of(refusal.status)} + "\"}\n";
  return reply;
}

}  // namespace acc::agent::daemon
