#include "agent/daemon/connection_bounds.hpp"

#include <algorithm>

namespace acc::agent::daemon {

namespace {

constexpr std::size_t kLeastReserve = 64;
constexpr std::size_t kMostReserve = 2048;

ConnectionBounds bounds_without_limit(Doors doors) {
  ConnectionBounds bounds;
  bounds.browsers = kLoopbackLimits;
  bounds.peers.reserved = 0;  // of a peer, no user is known before its requests
  bounds.peers.replaces = false;
  bounds.peers.connections = kPeerConnections;
  bounds.peers.connections_of_a_user = kPeerConnectionsOfSource;
  // acc-launch --hosts follows two streams of each host, over this socket: a thousand hosts.
  if (doors.has_peers) {
    bounds.clients.connections = kPeerConnections;
    bounds.clients.connections_of_a_user = kPeerConnectionsOfSource;
  }
  return bounds;
}

std::size_t cost_of(const ConnectionBounds& bounds, Doors doors) {
  auto cost = bounds.clients.connections * kDescriptorsOfConnection;
  if (doors.has_peers)
    cost += bounds.peers.connections * kDescriptorsOfConnection + bounds.half_open + bounds.kept +
            bounds.listed;
  if (doors.has_browsers) cost += bounds.browsers.connections * kDescriptorsOfConnection;
  return cost;
}

}  // namespace

std::size_t descriptors_wanted(Doors doors) {
  const auto cost = cost_of(bounds_without_limit(doors), doors);
  return cost + std::clamp((cost + 2) / 3, kLeastReserve, kMostReserve);
}

ConnectionBounds connection_bounds(std::size_t descriptors, Doors doors) {
  auto bounds = bounds_without_limit(doors);
  const auto reserve = std::clamp(descriptors / 4, kLeastReserve, kMostReserve);
  const auto left = descriptors - std::min(descriptors, reserve);
  const auto cost = cost_of(bounds, doors);
  if (left >= cost) return bounds;
  bounds.is_lowered = true;
  const auto lower = [&](std::size_t& bound) {
    constexpr std::size_t kLeast = 4;
    bound = std::max(bound * left / cost, kLeast);
  };
  const auto keep_below = [](std::size_t& of_one, std::size_t of_all) {
    of_one = std::min(of_one, of_all * 3 / 4);
  };
  for (auto* limits : {&bounds.clients, &bounds.peers, &bounds.browsers}) {
    lower(limits->connections);
    keep_below(limits->connections_of_a_user, limits->connections);
    limits->reserved = std::min(limits->reserved, limits->connections / 2);
  }
  for (auto* limits : {&bounds.shares.streams, &bounds.shares.briefs}) {
    limits->all = limits->all * left / cost;  // with the places of root beside it
    keep_below(limits->of_source, limits->all);
    keep_below(limits->of_user, limits->all);
    keep_below(limits->of_user_at_source, limits->of_source);
  }
  lower(bounds.half_open);
  keep_below(bounds.half_open_named, bounds.half_open);
  lower(bounds.kept);
  lower(bounds.listed);
  return bounds;
}

}  // namespace acc::agent::daemon
