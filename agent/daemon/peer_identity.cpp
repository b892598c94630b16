#include "agent/daemon/peer_identity.hpp"

#include "agent/daemon/peer_rules.hpp"
#include "common/text.hpp"

#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <cctype>
#include <utility>

namespace acc::agent::daemon {

namespace {

/// For so long one that was answered by another daemon, or by none, isn't asked again.
constexpr Millis kAskedFor{2'000};
constexpr std::size_t kMostSuspects = 16;
constexpr const char* kNotSent =
    ": nothing was asked of it. Does something at that address forward connections, or does the "
    "name lead to the wrong node?";

std::string host_of(const std::string& node) {
  const auto address = parse_node_address(node);
  return address ? address->host : node;
}

bool is_letter_equal(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

/// "na" of NA.site; an address as it is.
std::string short_name(std::string_view host) {
  const bool is_name =
      std::ranges::any_of(host, [](unsigned char c) { return std::isalpha(c) != 0; });
  std::string made{is_name ? host.substr(0, host.find('.')) : host};
  std::ranges::transform(made, made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

/// A container's host name may be "localhost": each host's own, or the end of a tunnel.
bool is_loopback(std::string_view host) {
  return to_lower(host).starts_with("localhost") || host.starts_with("127.") || host == "::1";
}

bool has_host_name(std::string_view host, const PeerIdentity& answered) {
  return is_same_host(host, answered.name) && !is_loopback(answered.name);
}

}  // namespace

std::string node_key(const std::string& node, std::uint16_t default_port) {
  const auto address = parse_node_address(node);
  if (!address) return node;
  boost::system::error_code is_name;
  const auto numeric = boost::asio::ip::make_address(address->host, is_name);
  const auto host = is_name ? to_lower(address->host) : numeric.to_string();
  return host + ':' + std::to_string(address->port != 0 ? address->port : default_port);
}

bool is_same_host(std::string_view one, std::string_view other) {
  if (one.size() > other.size()) std::swap(one, other);
  // "10" is no short form of 10.0.0.7.
  const bool is_name =
      std::ranges::any_of(one, [](unsigned char c) { return std::isalpha(c) != 0; });
  return !one.empty() && std::ranges::equal(one, other.substr(0, one.size()), is_letter_equal) &&
         (one.size() == other.size() || (is_name && other[one.size()] == '.'));
}

SeenNodes::Nodes::const_iterator SeenNodes::find(const std::string& node) const {
  return nodes_.find(node_key(node, default_port_));
}

bool SeenNodes::has(const std::string& node) const { return find(node) != nodes_.end(); }

void SeenNodes::set_nodes(const std::vector<std::string>& nodes) {
  auto before = std::exchange(nodes_, {});
  by_host_.clear();
  by_identity_.clear();
  by_said_name_.clear();
  for (const auto& name : nodes) {
    auto key = node_key(name, default_port_);
    Node node{name, host_of(name)};
    if (const auto known = before.find(key); known != before.end()) {
      node.last = known->second.last;
      node.accepted = known->second.accepted;
      node.at = known->second.at;
      node.is_silent = known->second.is_silent;
    }
    const auto [it, is_new] = nodes_.emplace(std::move(key), std::move(node));
    if (!is_new) continue;
    by_host_.emplace(short_name(it->second.host), it);
    link_last(it);
  }
}

void SeenNodes::unlink(Index& index, const std::string& key, Nodes::iterator node) {
  const auto [from, to] = index.equal_range(key);
  const auto found = std::find_if(from, to, [&](const auto& one) { return one.second == node; });
  if (found != to) index.erase(found);
}

void SeenNodes::link_last(Nodes::iterator node) {
  const auto& last = node->second.last;
  if (!last.identity.empty()) by_identity_.emplace(last.identity, node);
  if (!last.name.empty()) by_said_name_.emplace(to_lower(last.name), node);
}

void SeenNodes::forget_last(Nodes::iterator node) {
  unlink(by_identity_, node->second.last.identity, node);
  unlink(by_said_name_, to_lower(node->second.last.name), node);
  node->second.last = {};
}

void SeenNodes::saw(const std::string& node, const PeerIdentity& answered, Instant now) {
  const auto it = nodes_.find(node_key(node, default_port_));
  if (it == nodes_.end() || answered.identity.empty()) return;
  forget_last(it);
  it->second.last = answered;
  it->second.at = now;
  it->second.is_silent = false;
  link_last(it);
}

void SeenNodes::was_silent(const std::string& node, Instant now) {
  const auto it = nodes_.find(node_key(node, default_port_));
  if (it == nodes_.end()) return;
  it->second.at = now;
  it->second.is_silent = true;
}

void SeenNodes::was_absent(const std::string& node, Instant now) {
  const auto it = nodes_.find(node_key(node, default_port_));
  if (it == nodes_.end()) return;
  forget_last(it);
  it->second.at = now;
  it->second.is_silent = false;
}

void SeenNodes::accept(const std::string& node, const PeerIdentity& answered) {
  const auto it = nodes_.find(node_key(node, default_port_));
  if (it != nodes_.end()) it->second.accepted = answered;
}

bool SeenNodes::is_own_in_disguise(const std::string& wanted, const PeerIdentity& answered) const {
  return is_own(answered) && !is_same_host(host_of(wanted), own_.name);
}

bool SeenNodes::is_answered_by(const std::string& node, const PeerIdentity& answered,
                               Instant since) const {
  const auto it = find(node);
  return it != nodes_.end() && !answered.identity.empty() &&
         it->second.last.identity == answered.identity && !it->second.is_silent &&
         it->second.at >= since;
}

std::vector<Suspect> SeenNodes::suspects(const std::string& wanted, const PeerIdentity& answered,
                                         bool is_here, Instant now) const {
  const auto self = find(wanted);
  // An alias that the settings don't have may mean any of them.
  if (answered.identity.empty() || self == nodes_.end()) return {};
  const auto& host = self->second.host;
  const bool is_by_name = has_host_name(host, answered);
  const bool is_own_here = is_here && is_own(answered);
  if (is_own_here && (is_by_name || is_loopback(host))) return {};
  std::vector<Suspect> found;
  const auto was_asked = [&](const Node& node) {
    return node.at != Instant::min() && now - node.at < kAskedFor;
  };
  const auto look = [&](const Index& index, const std::string& key, bool blocks, auto is_suspect) {
    const auto [from, to] = index.equal_range(key);
    for (auto it = from; it != to && found.size() < kMostSuspects; ++it) {
      const auto& node = it->second->second;
      if (it->second != self && is_suspect(node))
        found.push_back({node.name, blocks, node.is_silent && was_asked(node)});
    }
  };
  // Several daemons of one host differ in their ports; this node itself leads here directly.
  const bool needs_name = is_by_name || is_own_here;
  look(by_identity_, answered.identity, true,
       [&](const Node& node) { return !needs_name || has_host_name(node.host, answered); });
  if (is_by_name) return found;
  const auto& accepted = self->second.accepted;
  const bool was_so_named = !accepted.name.empty() && accepted.name == answered.name;
  // One that answered otherwise just now isn't asked again.
  const auto may_be_it = [&](const Node& node) {
    return node.last.identity != answered.identity && (node.is_silent || !was_asked(node));
  };
  look(by_host_, short_name(answered.name), !was_so_named,
       [&](const Node& node) { return has_host_name(node.host, answered) && may_be_it(node); });
  // Rebooted, as it has a new identity, or another host of that name.
  const bool is_known = accepted.identity == answered.identity;
  if (needs_name || is_known || is_loopback(answered.name)) return found;
  look(by_said_name_, to_lower(answered.name), !was_so_named,
       [&](const Node& node) { return !has_host_name(node.host, answered) && may_be_it(node); });
  return found;
}

std::string SeenNodes::complaint(const std::string& wanted, const std::string& other,
                                 const PeerIdentity& answered) const {
  if (is_own(answered)) return leads_back(wanted, own_);
  return wanted + " is answered by the acc-agent of " + in_quotes(answered.name, 80) +
         ", which is the node " + other + kNotSent;
}

std::string doubt_about(const std::string& wanted, const std::string& other,
                        const PeerIdentity& answered) {
  return wanted + " is answered by the acc-agent of " + in_quotes(answered.name, 80) +
         ", which may be the node " + other +
         ", and that can't be asked now: nothing was changed. Try again when " + other +
         " answers, or take it out of --nodes here (systemctl reload acc-agent)";
}

std::string leads_back(const std::string& wanted, const PeerIdentity& own) {
  return wanted + " leads back to this node, " + own.name + kNotSent;
}

}  // namespace acc::agent::daemon
