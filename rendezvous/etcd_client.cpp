#include "rendezvous/etcd_client.hpp"

#include "common/text.hpp"

#include <algorithm>

namespace acc::rendezvous {

namespace asio = boost::asio;

namespace {

// A table of 1 MiB in base64, twice (etcd may answer with what a key held before), and some.
constexpr std::size_t kLongestAnswer = 4 * 1024 * 1024;
// Only small keys are watched.
constexpr std::size_t kLongestNews = 256 * 1024;
constexpr std::size_t kMostEndpoints = 16;

constexpr std::string_view kCure =
    "Start etcd there, correct --rdzv_endpoint, or open that port in the firewall; 'etcdctl "
    "--endpoints=ADDRESS endpoint health' tells the same";

Error bad_endpoint(std::string_view text, std::string_view why) {
  return {Errc::bad_config, "etcd endpoint \"" + printable(text) + "\": " + std::string{why}};
}

Result<EtcdEndpoint> parse_endpoint(std::string_view whole) {
  std::string_view text = whole;
  if (text.starts_with("https://"))
    return bad_endpoint(whole, "TLS to etcd isn't supported; use http:// on a trusted network");
  if (text.starts_with("http://")) text.remove_prefix(7);
  while (text.ends_with('/')) text.remove_suffix(1);
  EtcdEndpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad_endpoint(whole, "a ']' is missing");
    endpoint.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && !port.starts_with(':'))
      return bad_endpoint(whole, "':PORT' should follow the ']'");
  } else {
    const std::size_t colon = text.find(':');
    if (colon != text.rfind(':')) return bad_endpoint(whole, "write an IPv6 address in [ ]");
    endpoint.host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon);
  }
  if (endpoint.host.empty()) return bad_endpoint(whole, "no host; write HOST:PORT");
  const bool is_odd = std::any_of(endpoint.host.begin(), endpoint.host.end(), [](unsigned char c) {
    return c <= ' ' || c >= 0x7f || c == '/' || c == '@' || c == '?' || c == '#';
  });
  if (is_odd) return bad_endpoint(whole, "not HOST:PORT");
  if (port.empty()) return endpoint;
  const auto number = parse_number<std::uint16_t>(port.substr(1));
  if (!number || *number == 0) return bad_endpoint(whole, "a port is 1 to 65535");
  endpoint.port = *number;
  return endpoint;
}

}  // namespace

Result<std::vector<EtcdEndpoint>> parse_etcd_endpoints(std::string_view list) {
  std::vector<EtcdEndpoint> endpoints;
  for (const auto& part : split(list, ',')) {
    const auto text = trim(part);
    if (text.empty()) continue;
    auto endpoint = parse_endpoint(text);
    if (!endpoint) return endpoint.error();
    if (std::find(endpoints.begin(), endpoints.end(), *endpoint) == endpoints.end())
      endpoints.push_back(std::move(*endpoint));
  }
  if (endpoints.empty()) return bad_endpoint(list, "no address; write http://HOST:2379");
  if (endpoints.size() > kMostEndpoints)
    return bad_endpoint(list, "more than " + std::to_string(kMostEndpoints) + " addresses");
  return endpoints;
}

struct EtcdClient::State {
  State(asio::any_io_executor executor, std::vector<EtcdEndpoint> all)
      : http{std::move(executor)}, endpoints{std::move(all)} {}
  EtcdHttp http;
  std::vector<EtcdEndpoint> endpoints;
  std::size_t current = 0;  ///< answered last
  std::size_t watched = 0;
  bool watches = false;
  bool is_stopped = false;
};

namespace {

using StatePtr = std::shared_ptr<EtcdClient::State>;

/// What the members that were asked said, until one answered.
class Attempts {
 public:
  explicit Attempts(std::string name) : name_{std::move(name)} {}

  void add(const EtcdEndpoint& at, const Error& error) {
    if (!tried_.empty()) tried_ += "; ";
    tried_ += to_string(at) + ": " + error.what;
    ++count_;
    all_late_ = all_late_ && error.code == Errc::timed_out;
  }
  void add(const EtcdEndpoint& at, const EtcdRefusal& refusal) {
    add(at, Error{refusal.code, refusal.what});
    answered_ = true;
  }
  /// None answered as it should.
  [[nodiscard]] Error error() const {
    std::string what = "etcd: " + name_ + ": ";
    what += count_ == 1 ? tried_ : "none of " + std::to_string(count_) + " endpoints: " + tried_;
    // Whatever answered has told its own cure.
    if (!answered_) what += ". " + std::string{kCure};
    return {all_late_ ? Errc::timed_out : Errc::unavailable, std::move(what)};
  }

 private:
  std::string name_;
  std::string tried_;
  std::size_t count_ = 0;
  bool all_late_ = true;
  bool answered_ = false;
};

Error stopped(const EtcdCall& call) {
  return {Errc::unavailable, "etcd: " + call.name + ": given up, as the job ends"};
}

Error about(const EtcdCall& call, const EtcdEndpoint& at, std::string_view what, Errc code) {
  return {code, "etcd: " + call.name + ": " + to_string(at) + ": " + std::string{what}};
}

/// The body of the first answer that is one.
asio::awaitable<Result<std::string>> ask(StatePtr state, std::string path, std::string body,
                                         EtcdCall call) {
  const Instant deadline = clock_now() + call.limit;
  const std::size_t count = state->endpoints.size();
  const std::size_t first = state->current;
  Attempts attempts{call.name};
  for (std::size_t i = 0; i < count; ++i) {
    if (state->is_stopped) co_return stopped(call);
    const std::size_t index = (first + i) % count;
    const auto& endpoint = state->endpoints[index];
    const Instant until =
        clock_now() + (deadline - clock_now()) / static_cast<std::int64_t>(count - i);
    EtcdHttp::Request request{endpoint, path, body, until};
    auto reply = co_await state->http.post(std::move(request), kLongestAnswer);
    if (state->is_stopped) co_return stopped(call);
    if (!reply) {
      attempts.add(endpoint, reply.error());
      continue;
    }
    if (reply->status == 200) {
      state->current = index;
      co_return std::move(reply->body);
    }
    const auto refusal = parse_etcd_refusal(reply->status, reply->body);
    if (!refusal.elsewhere) co_return about(call, endpoint, refusal.what, refusal.code);
    attempts.add(endpoint, refusal);
  }
  co_return attempts.error();
}

/// Asks, and reads the answer with `parse`.
template <class T, class Parse>
asio::awaitable<Result<T>> ask_for(StatePtr state, std::string path, std::string body,
                                   EtcdCall call, Parse parse) {
  const auto answer = co_await ask(state, std::move(path), std::move(body), call);
  if (!answer) co_return answer.error();
  Result<T> value = parse(*answer);
  if (!value)
    co_return about(call, state->endpoints[state->current], value.error().what, value.error().code);
  co_return value;
}

asio::awaitable<Error> watch_key(StatePtr state, std::string body, EtcdClient::OnEvent on_event,
                                 EtcdCall opening) {
  const EtcdEndpoint endpoint = state->endpoints[state->current];
  state->watched = state->current;
  state->watches = true;
  EtcdLines lines{kLongestNews};
  Error broken{Errc::unavailable, {}};
  const auto on_piece = [&](std::string_view piece) {
    const auto complete = lines.feed(piece);
    if (!complete) broken = complete.error();
    for (std::size_t i = 0; complete && i < complete->size() && broken.what.empty(); ++i) {
      const auto news = parse_etcd_news((*complete)[i]);
      if (!news) {
        broken = news.error();
      } else if (news->canceled) {
        broken.what = "etcd ended the watch";
      } else {
        for (const auto& event : news->events)
          if (!state->is_stopped) on_event(event);
      }
    }
    return broken.what.empty() && !state->is_stopped;
  };
  EtcdHttp::Request request{endpoint, "/v3/watch", std::move(body), clock_now() + opening.limit};
  const auto end = co_await state->http.stream(std::move(request), on_piece);
  state->watches = false;
  if (state->is_stopped) co_return stopped(opening);
  if (!broken.what.empty()) co_return about(opening, endpoint, broken.what, broken.code);
  if (!end) co_return about(opening, endpoint, end.error().what, end.error().code);
  const auto refusal = parse_etcd_refusal(end->status, end->body);
  co_return about(opening, endpoint, refusal.what, refusal.code);
}

}  // namespace

EtcdClient::EtcdClient(asio::any_io_executor executor, std::vector<EtcdEndpoint> endpoints)
    : state_{std::make_shared<State>(std::move(executor), std::move(endpoints))} {}

EtcdClient::~EtcdClient() { stop(); }

// None of these is a coroutine itself: what runs on holds the state, not this object.

EtcdClient::Answer<EtcdRead> EtcdClient::range(std::string key, EtcdCall call) {
  return ask_for<EtcdRead>(state_, "/v3/kv/range", etcd_range_request(key), std::move(call),
                           parse_etcd_range);
}

EtcdClient::Answer<std::int64_t> EtcdClient::put(std::string key, std::string value,
                                                 std::int64_t lease, EtcdCall call) {
  return ask_for<std::int64_t>(state_, "/v3/kv/put", etcd_put_request(key, value, lease),
                               std::move(call), parse_etcd_revision);
}

EtcdClient::Answer<EtcdTransactionReply> EtcdClient::transact(EtcdTransaction transaction,
                                                              EtcdCall call) {
  std::string body = etcd_transaction_request(transaction);
  const auto parse = [asked = std::move(transaction)](std::string_view json) {
    return parse_etcd_transaction(json, asked);
  };
  return ask_for<EtcdTransactionReply>(state_, "/v3/kv/txn", std::move(body), std::move(call),
                                       parse);
}

EtcdClient::Answer<EtcdLease> EtcdClient::grant(std::int64_t ttl_s, EtcdCall call) {
  return ask_for<EtcdLease>(state_, "/v3/lease/grant", etcd_grant_request(ttl_s), std::move(call),
                            parse_etcd_lease);
}

EtcdClient::Answer<EtcdLease> EtcdClient::keep_alive(std::int64_t lease, EtcdCall call) {
  return ask_for<EtcdLease>(state_, "/v3/lease/keepalive", etcd_lease_request(lease),
                            std::move(call), parse_etcd_lease);
}

EtcdClient::Answer<std::int64_t> EtcdClient::revoke(std::int64_t lease, EtcdCall call) {
  return ask_for<std::int64_t>(state_, "/v3/lease/revoke", etcd_lease_request(lease),
                               std::move(call), parse_etcd_revision);
}

asio::awaitable<Error> EtcdClient::watch(std::string key, std::int64_t from_revision,
                                         OnEvent on_event, EtcdCall opening) {
  return watch_key(state_, etcd_watch_request(key, from_revision), std::move(on_event),
                   std::move(opening));
}

void EtcdClient::break_watches() { state_->http.end_streams(); }

bool EtcdClient::watch_is_elsewhere() const {
  return state_->watches && state_->watched != state_->current;
}

void EtcdClient::stop() {
  state_->is_stopped = true;
  state_->http.stop();
}

}  // namespace acc::rendezvous
