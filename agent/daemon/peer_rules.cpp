#include "agent/daemon/peer_rules.hpp"

#include "common/text.hpp"
#include "common/version.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

namespace acc::agent::daemon {

namespace {

constexpr std::size_t kLongestHost = 253;
constexpr std::size_t kLongestUser = 256;
/// Of the caller's request; what else a daemon needs is written here.
constexpr std::array<std::string_view, 3> kPassedOn{"accept", "content-type", "last-event-id"};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_host(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= kLongestHost && is_letter(text[0]) &&
         std::ranges::all_of(
             text, [&](char c) { return is_letter(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_ipv6(std::string_view text) {
  // Also of the zone, behind the '%'; and a zero byte would end the text too early.
  const bool is_plain = std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ':' ||
           c == '.' || c == '%' || c == '_' || c == '-';
  });
  if (!is_plain) return false;
  in6_addr address{};
  return ::inet_pton(AF_INET6, std::string{text.substr(0, text.find('%'))}.c_str(), &address) == 1;
}

bool is_numeric(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 || is_ipv6(text);
}

std::optional<NodeAddress> with_port(std::string_view host, std::string_view port) {
  const auto number = parse_number<std::uint16_t>(port);
  if (!number || *number == 0) return std::nullopt;
  return NodeAddress{std::string{host}, *number};
}

}  // namespace

std::optional<NodeAddress> parse_node_address(std::string_view text) {
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const auto host = text.substr(1, end - 1);
    const auto rest = text.substr(end + 1);
    if (!is_ipv6(host)) return std::nullopt;
    if (rest.empty()) return NodeAddress{std::string{host}, 0};
    if (!rest.starts_with(':')) return std::nullopt;
    return with_port(host, rest.substr(1));
  }
  if (std::ranges::count(text, ':') > 1)
    return is_ipv6(text) ? std::optional{NodeAddress{std::string{text}, 0}} : std::nullopt;
  const auto colon = text.find(':');
  const auto host = text.substr(0, colon);
  if (!is_host(host)) return std::nullopt;
  if (colon == std::string_view::npos) return NodeAddress{std::string{host}, 0};
  return with_port(host, text.substr(colon + 1));
}

Result<NodeAddress> parse_listen_address(std::string_view text) {
  if (const auto port = parse_number<std::uint16_t>(text); port && *port != 0)
    return NodeAddress{"", *port};
  auto address = parse_node_address(text);
  if (!address || !is_numeric(address->host))
    return Error{Errc::bad_config, in_quotes(text, 80) +
                                       ": expected [ADDRESS:]PORT with a numeric address of this "
                                       "host, as 29700, 10.0.0.7:29700 or [fd00::7]:29700"};
  if (address->port == 0) address->port = kDefaultPeerPort;
  return *address;
}

std::string user_name_complaint(std::string_view name) {
  if (name.empty()) return "no user is named";
  if (name.size() > kLongestUser) return "a user's name of more than 256 bytes";
  if (std::ranges::any_of(name, [](char c) { return is_control(c) || c == ':' || c == '/'; }) ||
      name != trim(name))
    return in_quotes(name, 80) + " is no user's name";
  if (std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }))
    return in_quotes(name, 80) +
           " is a number: nodes know users by their names, as numbers may mean others elsewhere";
  return {};
}

VouchedUser vouched_user(const HttpRequest& request) {
  VouchedUser user;
  std::size_t count = 0;
  for (const auto& [name, value] : request.headers) {
    if (name != "x-acc-user") continue;
    ++count;
    user.name = value;
  }
  if (count != 1) {
    user.refusal = {400, count == 0 ? "between nodes each request names its user: X-Acc-User"
                                    : "X-Acc-User is there more than once"};
    return user;
  }
  if (auto wrong = user_name_complaint(user.name); !wrong.empty())
    user.refusal = {403, "X-Acc-User: " + std::move(wrong)};
  return user;
}

std::optional<NodeTarget> split_node_target(const HttpRequest& request) {
  constexpr std::size_t kFirst = 3;  // v1, nodes, the node
  if (request.segments.size() <= kFirst) return std::nullopt;
  std::string_view target = request.target;
  if (!target.starts_with('/')) {  // the absolute form
    const auto scheme = target.find("://");
    if (scheme == std::string_view::npos) return std::nullopt;
    target.remove_prefix(std::min(target.find('/', scheme + 3), target.size()));
  }
  target = target.substr(0, target.find('#'));
  const auto mark = std::min(target.find('?'), target.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < kFirst && at < mark; ++i) at = target.find('/', at + 1);
  if (at >= mark) return std::nullopt;
  return NodeTarget{request.segments[2], std::string{target.substr(at)}};
}

std::string peer_request(const HttpRequest& request, const NodeTarget& target,
                         std::string_view user, bool is_last) {
  std::string text =
      request.method + ' ' + target.rest + " HTTP/1.1\r\nHost: " + target.node + "\r\nX-Acc-User: ";
  text.append(user).append("\r\nX-Acc-Version: ").append(version()).append("\r\n");
  if (is_last) text += "Connection: close\r\n";
  for (const auto& [name, value] : request.headers) {
    if (std::ranges::find(kPassedOn, name) == kPassedOn.end()) continue;
    if (std::ranges::any_of(value, is_control)) continue;
    text.append(name).append(": ").append(value).append("\r\n");
  }
  if (request.header("content-length") || request.header("transfer-encoding") ||
      !request.body.empty())
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text.append("\r\n").append(request.body);
}

}  // namespace acc::agent::daemon
