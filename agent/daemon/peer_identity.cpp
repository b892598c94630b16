#include "agent/daemon/peer_identity.hpp"

#include "agent/daemon/peer_rules.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace acc::agent::daemon {

namespace {

/// An address may have moved to another node since.
constexpr Millis kSeenFor{10 * 60 * 1000};
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

}  // namespace

bool is_same_host(std::string_view one, std::string_view other) {
  if (one.size() > other.size()) std::swap(one, other);
  // "10" is no short form of 10.0.0.7.
  const bool is_name =
      std::ranges::any_of(one, [](unsigned char c) { return std::isalpha(c) != 0; });
  return !one.empty() && std::ranges::equal(one, other.substr(0, one.size()), is_letter_equal) &&
         (one.size() == other.size() || (is_name && other[one.size()] == '.'));
}

void SeenNodes::set_nodes(const std::vector<std::string>& nodes) {
  auto before = std::exchange(nodes_, {});
  by_host_.clear();
  by_identity_.clear();
  for (const auto& name : nodes) {
    Node node{host_of(name)};
    if (const auto known = before.find(name); known != before.end()) node = known->second;
    const auto [it, is_new] = nodes_.emplace(name, std::move(node));
    if (!is_new) continue;
    by_host_.emplace(short_name(it->second.host), it);
    if (!it->second.identity.empty()) by_identity_.emplace(it->second.identity, it);
  }
}

bool SeenNodes::is_recent(const Node& node, Instant now) { return now - node.at < kSeenFor; }

void SeenNodes::unlink(Index& index, const std::string& key, Nodes::iterator node) {
  const auto [from, to] = index.equal_range(key);
  const auto found = std::find_if(from, to, [&](const auto& one) { return one.second == node; });
  if (found != to) index.erase(found);
}

void SeenNodes::saw(const std::string& node, const PeerIdentity& answered, Instant now) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  unlink(by_identity_, it->second.identity, it);
  it->second.identity = answered.identity;
  it->second.at = now;
  if (!answered.identity.empty()) by_identity_.emplace(answered.identity, it);
}

bool SeenNodes::is_known_as_own(const std::string& node, Instant now) const {
  if (is_same_host(host_of(node), own_.name)) return true;
  const auto it = nodes_.find(node);
  return it != nodes_.end() && it->second.identity == own_.identity && is_recent(it->second, now);
}

bool SeenNodes::is_own_in_disguise(const std::string& wanted, const PeerIdentity& answered) const {
  return !answered.identity.empty() && answered.identity == own_.identity &&
         !is_same_host(host_of(wanted), own_.name);
}

std::string SeenNodes::complaint(const std::string& wanted, const PeerIdentity& answered,
                                 Instant now) const {
  // An alias that the settings don't have may mean any of them.
  if (answered.identity.empty() || !has(wanted)) return {};
  const bool is_by_name = is_same_host(host_of(wanted), answered.name);
  const std::string* other = nullptr;
  const auto look = [&](const Index& index, const std::string& key) {
    const auto [from, to] = index.equal_range(key);
    for (auto it = from; it != to; ++it) {
      const auto& [node, facts] = *it->second;
      if (node == wanted) continue;
      const bool other_by_name = is_same_host(facts.host, answered.name);
      const bool was_other = facts.identity == answered.identity && is_recent(facts, now);
      // Several daemons of one host differ in their ports.
      if (!(is_by_name ? was_other && other_by_name : was_other || other_by_name)) continue;
      other = &node;
    }
  };
  look(by_identity_, answered.identity);
  if (other == nullptr) look(by_host_, short_name(answered.name));
  if (other == nullptr) return {};
  return wanted + " is answered by the acc-agent of " + in_quotes(answered.name, 80) +
         ", which is the node " + *other + kNotSent;
}

std::string leads_back(const std::string& wanted, const PeerIdentity& own) {
  return wanted + " leads back to this node, " + own.name + kNotSent;
}

}  // namespace acc::agent::daemon
