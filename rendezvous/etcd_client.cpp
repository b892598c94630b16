#include "rendezvous/etcd_client.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <optional>

namespace acc::rendezvous {

namespace asio = boost::asio;

namespace {

// A table of 1 MiB in base64, twice (etcd may answer with a key's previous value), and some.
constexpr std::size_t kLongestAnswer = 4 * 1024 * 1024;
constexpr std::size_t kMostEndpoints = 16;

constexpr std::string_view kCure =
    "Start etcd there, correct --rdzv_endpoint, or open that port in the firewall; 'etcdctl "
    "--endpoints=ADDRESS endpoint health' tells the same";

Error bad_endpoint(std::string_view text, std::string_view why) {
  return {Errc::bad_config, "etcd endpoint \"" + printable(text) + "\": " + std::string{why}};
}

Result<EtcdEndpoint> parse_endpoint(std::string_view whole) {
  std::string_view text = whole;
  EtcdEndpoint endpoint;
  endpoint.is_tls = text.starts_with("https://");
  if (endpoint.is_tls) text.remove_prefix(8);
  if (text.starts_with("http://")) text.remove_prefix(7);
  while (text.ends_with('/')) text.remove_suffix(1);
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
  State(asio::any_io_executor executor, std::vector<EtcdEndpoint> all, EtcdCredentials credentials)
      : http{std::move(executor), std::move(credentials.tls)},
        endpoints{std::move(all)},
        user{std::move(credentials.user)} {}
  EtcdHttp http;
  std::vector<EtcdEndpoint> endpoints;
  std::size_t current = 0;  ///< the last one that answered
  std::optional<EtcdUser> user;
  std::string token;          ///< from the user's login; empty: none yet
  bool has_no_users = false;  ///< etcd requires no login
  bool is_stopped = false;
};

namespace {

using StatePtr = std::shared_ptr<EtcdClient::State>;

/// Failures of the endpoints that were asked, until one answered.
class Attempts {
 public:
  explicit Attempts(std::string name) : name_{std::move(name)} {}

  void add(const EtcdEndpoint& at, const Error& error) {
    if (!tried_.empty()) tried_ += "; ";
    tried_ += to_string(at) + ": " + error.what;
    ++count_;
    all_late_ = all_late_ && error.code == Errc::timed_out;
    answered_ = answered_ || error.code == Errc::bad_config;
  }
  void add(const EtcdEndpoint& at, const EtcdRefusal& refusal) {
    add(at, Error{refusal.code, refusal.what});
    answered_ = true;
  }
  /// For the case that none answered as expected.
  [[nodiscard]] Error error() const {
    std::string what = "etcd: " + name_ + ": ";
    what += count_ == 1 ? tried_ : "none of " + std::to_string(count_) + " endpoints: " + tried_;
    // An answer has already named its own cure.
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

/// Gets a token. An etcd without users needs none. A refused login gives not_permitted.
asio::awaitable<Result<void>> log_in(StatePtr state, EtcdEndpoint endpoint, Instant until) {
  const std::string body = etcd_login_request(state->user->name, state->user->password.view());
  EtcdHttp::Request request{endpoint, "/v3/auth/authenticate", body, {}, until};
  const auto reply = co_await state->http.post(std::move(request), kLongestAnswer);
  if (!reply) co_return reply.error();
  if (reply->status == 200) {
    auto token = parse_etcd_token(reply->body);
    if (!token) co_return token.error();
    state->token = std::move(*token);
    co_return Result<void>{};
  }
  const auto refusal = parse_etcd_refusal(reply->status, reply->body);
  state->has_no_users = refusal.has_no_users;
  if (refusal.has_no_users) co_return Result<void>{};
  co_return Error{refusal.code, "log in as '" + state->user->name + "' (" + state->user->from +
                                    "): " + refusal.what};
}

asio::awaitable<Result<HttpReply>> post_as_user(StatePtr state, EtcdEndpoint endpoint,
                                                std::string path, std::string body, Instant until) {
  bool is_renewed = false;
  while (true) {
    if (state->user && state->token.empty() && !state->has_no_users) {
      const auto done = co_await log_in(state, endpoint, until);
      if (!done) co_return done.error();
    }
    EtcdHttp::Request request{endpoint, path, body, state->token, until};
    auto reply = co_await state->http.post(std::move(request), kLongestAnswer);
    const bool is_final = !reply || reply->status == 200 || !state->user || is_renewed;
    if (is_final || !parse_etcd_refusal(reply->status, reply->body).needs_login) co_return reply;
    is_renewed = true;
    state->has_no_users = false;
    state->token.clear();
  }
}

/// The body of the first valid answer.
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
    auto reply = co_await post_as_user(state, endpoint, path, body, until);
    if (state->is_stopped) co_return stopped(call);
    if (!reply && reply.error().code == Errc::not_permitted)
      co_return about(call, endpoint, reply.error().what, reply.error().code);
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

/// Asks, and parses the answer with `parse`.
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

}  // namespace

EtcdClient::EtcdClient(asio::any_io_executor executor, std::vector<EtcdEndpoint> endpoints,
                       EtcdCredentials credentials)
    : state_{std::make_shared<State>(std::move(executor), std::move(endpoints),
                                     std::move(credentials))} {}

EtcdClient::~EtcdClient() { stop(); }

// None of these is a coroutine itself: a pending one holds the state, not this object.

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

void EtcdClient::stop() {
  state_->is_stopped = true;
  state_->http.stop();
}

}  // namespace acc::rendezvous
