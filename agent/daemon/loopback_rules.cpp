#include "agent/daemon/loopback_rules.hpp"

#include "common/text.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::uint32_t kMostWrong = 10;  ///< of a source, a minute
constexpr std::uint64_t kMostIssuedLines = 10;  ///< of the log for a user, a minute
constexpr Millis kCountedTime{60'000};
constexpr std::size_t kMostCountedUsers = 1024;  ///< before those whose time is over are dropped

bool is_loopback_name(std::string_view host) {
  if (to_lower(host) == "localhost") return true;
  const std::string text{host};
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24U) == 127;
  in6_addr six{};
  return ::inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/// "localhost:9180" without the port. A port is any: `ssh -L` gives another.
std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos) return {};
    const auto rest = authority.substr(end + 1);
    const bool is_port =
        rest.empty() || (rest[0] == ':' && parse_number<std::uint16_t>(rest.substr(1)));
    return is_port ? authority.substr(1, end - 1) : std::string_view{};
  }
  const auto colon = authority.find(':');
  if (colon == std::string_view::npos) return authority;
  return parse_number<std::uint16_t>(authority.substr(colon + 1)) ? authority.substr(0, colon)
                                                                  : std::string_view{};
}

std::size_t count_of(const HttpRequest& request, std::string_view name) {
  return static_cast<std::size_t>(
      std::ranges::count(request.headers, name, &std::pair<std::string, std::string>::first));
}

}  // namespace

Result<NodeAddress> parse_loopback_address(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::bad_config, in_quotes(text, 80) + ": " + why};
  };
  if (const auto port = parse_number<std::uint16_t>(text); port && *port != 0)
    return NodeAddress{"127.0.0.1", *port};
  auto address = parse_node_address(text);
  if (!address || address->port == 0)
    return refuse("expected ADDRESS:PORT of this host's loopback, as 127.0.0.1:9180 or [::1]:9180");
  if (to_lower(address->host) == "localhost") address->host = "127.0.0.1";
  if (!is_loopback_name(address->host))
    return refuse(
        "is no loopback address: requests and tokens aren't encrypted here, so that only this host "
        "may send them. Use 127.0.0.1:PORT, and from other hosts `ssh -L`; --listen is for other "
        "acc-agents");
  return *address;
}

HttpRefusal foreign_page(const HttpRequest& request) {
  if (!request.target.starts_with('/'))
    return {400, "the target " + in_quotes(request.target, 100) + " must be a path"};
  const auto host = request.header("host");
  if (!host || count_of(request, "host") != 1 || !is_loopback_name(without_port(*host)))
    return {403, "the Host " + in_quotes(host.value_or(""), 100) +
                     " isn't this host: use localhost or 127.0.0.1 in the address"};
  // A page of another port of localhost is of the same site, and gets SameSite cookies sent.
  if (const auto site = request.header("sec-fetch-site");
      site && *site != "same-origin" && *site != "none")
    return {403, "a page of another origin sent this: open the address itself"};
  if (count_of(request, "origin") > 0 && !only_reads(request)) {
    const auto origin = to_lower(*request.header("origin"));
    if (count_of(request, "origin") > 1 || origin != std::string{kScheme} + to_lower(*host))
      return {403, "a page of " + in_quotes(origin, 100) + " may change nothing here"};
  }
  return {};
}

bool only_reads(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

Credentials credentials_of(const HttpRequest& request, std::string_view cookie_name) {
  constexpr std::string_view kBearer = "bearer ";
  Credentials found;
  if (const auto header = request.header("authorization")) {
    const bool is_bearer = to_lower(header->substr(0, kBearer.size())) == kBearer;
    found.is_malformed = !is_bearer || count_of(request, "authorization") > 1;
    if (!found.is_malformed) found.bearer = trim(header->substr(kBearer.size()));
    found.is_malformed = found.is_malformed || found.bearer.empty();
    return found;
  }
  for (const auto& [name, value] : request.headers) {
    if (name != "cookie") continue;
    std::string_view rest{value};
    while (!rest.empty()) {
      const auto end = std::min(rest.find(';'), rest.size());
      const auto one = trim(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const auto equals = one.find('=');
      if (equals == std::string_view::npos || one.substr(0, equals) != cookie_name) continue;
      found.cookie = one.substr(equals + 1);
      return found;
    }
  }
  return found;
}

std::optional<std::string_view> ticket_of(const HttpRequest& request) {
  const bool is_root = request.segments.empty() ||
                       (request.segments.size() == 1 && request.segments.front().empty());
  if (!is_root || request.method != "GET" || request.query.size() != 1 ||
      request.query.front().first != "token")
    return std::nullopt;
  return request.query.front().second;
}

bool WrongTokens::is_blocked(uid_t source, Instant now) const {
  const auto found = sources_.find(source);
  return found != sources_.end() && found->second.failures >= kMostWrong &&
         now < found->second.ends;
}

Millis WrongTokens::blocked_for(uid_t source, Instant now) const {
  const auto found = sources_.find(source);
  if (found == sources_.end()) return Millis{0};
  return std::max(Millis{0}, std::chrono::duration_cast<Millis>(found->second.ends - now));
}

bool WrongTokens::failed(uid_t source, Instant now) {
  if (sources_.size() >= kMostCountedUsers && !sources_.contains(source))
    std::erase_if(sources_, [&](const auto& one) { return one.second.ends <= now; });
  auto& minute = sources_[source];
  if (minute.ends <= now) minute = {now + kCountedTime, 0};
  return ++minute.failures == 1;
}

IssuedTokensLog::Verdict IssuedTokensLog::issued(uid_t user, Instant now) {
  if (users_.size() >= kMostCountedUsers && !users_.contains(user))
    std::erase_if(users_, [&](const auto& one) { return one.second.ends <= now; });
  auto& minute = users_[user];
  Verdict verdict;
  if (minute.ends <= now) {
    verdict.left_out = minute.tokens > kMostIssuedLines ? minute.tokens - kMostIssuedLines : 0;
    minute = {now + kCountedTime, 0};
  }
  ++minute.tokens;
  verdict.is_logged = minute.tokens <= kMostIssuedLines;
  verdict.is_last = minute.tokens == kMostIssuedLines;
  return verdict;
}

}  // namespace acc::agent::daemon
