#include "agent/daemon/connection_bounds.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

namespace acc::agent::daemon {

namespace {

constexpr Doors kLocal{};
constexpr Doors kNode{.has_peers = true};
constexpr Doors kAll{.has_peers = true, .has_browsers = true};

/// What all users together can make the daemon hold.
std::size_t cost(const ConnectionBounds& bounds, Doors doors) {
  std::size_t all = bounds.clients.connections;
  if (doors.has_peers) all += bounds.peers.connections;
  if (doors.has_browsers) all += bounds.browsers.connections;
  return 3 * all + (doors.has_peers ? bounds.half_open + bounds.kept + bounds.listed : 0);
}

}  // namespace

TEST_CASE("the usual bounds hold where descriptors are plenty", "[agent][http]") {
  struct Row {
    Doors doors;
    std::size_t clients, of_a_user;
  };
  for (const auto& row : {Row{kLocal, 512, 256}, Row{kNode, 4096, 2304}, Row{kAll, 4096, 2304}}) {
    const auto bounds = connection_bounds(1048576, row.doors);
    CHECK_FALSE(bounds.is_lowered);
    CHECK(bounds.clients.connections == row.clients);
    CHECK(bounds.clients.connections_of_a_user == row.of_a_user);
    CHECK(bounds.clients.reserved == 32);
    CHECK(bounds.peers.connections == kPeerConnections);
    CHECK(bounds.shares.streams.of_user == kStreamLimits.of_user);
    CHECK(bounds.half_open == 1024);
    CHECK(bounds.listed == kListedPeers);
    const auto wanted = descriptors_wanted(row.doors);
    CHECK_FALSE(connection_bounds(wanted, row.doors).is_lowered);
    CHECK(connection_bounds(wanted - 8, row.doors).is_lowered);
  }
}

TEST_CASE("with 4,096 descriptors one user's followers of logs took all, and root's acc-ctl hung",
          "[agent][http]") {
  const auto doors = GENERATE(kLocal, kNode, kAll);
  const std::size_t descriptors = GENERATE(256, 512, 1024, 2048, 4096, 8192, 20000, 65536);
  CAPTURE(doors.has_peers, doors.has_browsers, descriptors);
  const auto bounds = connection_bounds(descriptors, doors);
  const auto most = cost(bounds, doors);
  if (descriptors >= 1024) {
    CHECK(most <= descriptors - std::min<std::size_t>(descriptors / 4, 2048));
    CHECK(bounds.clients.reserved == 32);  // root's
    CHECK(bounds.clients.connections_of_a_user < bounds.clients.connections);
  }
  CHECK(bounds.clients.reserved >= 4);
  CHECK(bounds.clients.connections_of_a_user >= 8);
  CHECK(bounds.clients.reserved <= bounds.clients.connections / 2);
  const auto& [streams, briefs] = bounds.shares;
  CHECK(streams.all + briefs.all < bounds.peers.connections);  // what is left is root's
  CHECK(streams.of_source + briefs.of_source < bounds.peers.connections_of_a_user);
  CHECK(streams.of_user_at_source < streams.of_source);
  if (descriptors >= 20000 && doors.has_peers) {
    CHECK(bounds.clients.connections_of_a_user >= 2000);  // of a launch on a thousand hosts
    CHECK(streams.of_user_at_source == kStreamLimits.of_user_at_source);
  }
}

}  // namespace acc::agent::daemon
