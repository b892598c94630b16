// Which node answers: what its daemon says of itself, compared with the names that are known.
#include "agent/daemon/peer_identity.hpp"

#include "agent/daemon/own_address.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

const Instant kStart{};

SeenNodes of_na(const std::vector<std::string>& nodes = {"na", "nb", "nc"}) {
  SeenNodes seen{{"id-a", "na"}};
  seen.set_nodes(nodes);
  return seen;
}

std::string asked(const SeenNodes& seen, const std::string& wanted, const PeerIdentity& answered,
                  Millis later = Millis{0}) {
  return seen.complaint(wanted, answered, kStart + later);
}

}  // namespace

TEST_CASE("a relay at a node's address made another node carry out what it was asked",
          "[agent][peers]") {
  const auto seen = of_na();
  CHECK_THAT(asked(seen, "nb", {"id-c", "nc"}),
             Contains("nb is answered by the acc-agent of 'nc'"));
  CHECK(asked(seen, "nc", {"id-c", "nc"}).empty());
  CHECK_FALSE(asked(seen, "nb", {"id-c", "nc.site"}).empty());
}

TEST_CASE("a relay at the address of a node drained the node that asked", "[agent][peers]") {
  const auto seen = of_na();
  CHECK(seen.is_own_in_disguise("nb", {"id-a", "na"}));
  CHECK_FALSE(seen.is_own_in_disguise("na", {"id-a", "na"}));
  CHECK_FALSE(seen.is_own_in_disguise("na.site:29700", {"id-a", "na"}));
  CHECK_FALSE(seen.is_own_in_disguise("nb", {"id-b", "na"}));  // another host of the same name
  CHECK_FALSE(seen.is_own_in_disguise("nb", {"", "na"}));      // an older acc-agent
}

TEST_CASE("nodes that have other names than their hosts are told apart by who answered for each",
          "[agent][peers]") {
  auto seen = of_na();
  const PeerIdentity third{"id-c", "ip-10-0-0-9"};
  CHECK(asked(seen, "nb", third).empty());  // nothing says that it isn't
  seen.saw("nc", third, kStart);
  CHECK_FALSE(asked(seen, "nb", third).empty());
  CHECK(asked(seen, "nc", third).empty());
  CHECK(asked(seen, "nb", third, Millis{11 * 60 * 1000}).empty());  // it may have moved
  seen.set_nodes({"na", "nb", "nc", "nd"});                         // what is known stays
  CHECK_FALSE(asked(seen, "nb", third).empty());
  seen.saw("nc", {"id-c2", "ip-10-0-0-9"}, kStart);  // started again: not taken for nb any more
  CHECK(asked(seen, "nb", third).empty());
}

TEST_CASE("a relay that was asked first doesn't keep the real node from answering",
          "[agent][peers]") {
  auto seen = of_na();
  seen.saw("nb", {"id-c", "nc"}, kStart);
  CHECK(asked(seen, "nc", {"id-c", "nc"}).empty());
  CHECK_FALSE(asked(seen, "nb", {"id-c", "nc"}).empty());
}

TEST_CASE("aliases, addresses, ports and equal host names are no sign of a wrong node",
          "[agent][peers]") {
  auto seen = of_na();
  seen.saw("nb", {"id-b", "nb"}, kStart);
  CHECK(asked(seen, "10.0.0.8", {"id-b", "nb"}).empty());  // not in the settings
  CHECK(asked(seen, "trainer", {"id-b", "nb"}).empty());   // neither
  CHECK(asked(seen, "nb", {"id-b2", "nb"}).empty());       // started again
  CHECK(asked(seen, "nb", {"id-b", "debian"}).empty());    // a host that doesn't know its name
  CHECK(asked(of_na({"pub:7001", "pub:7002"}), "pub:7001", {"id-x", "debian"}).empty());
  auto ports = of_na({"nb:1", "nb:2"});
  CHECK(asked(ports, "nb:1", {"id-1", "nb"}).empty());
  ports.saw("nb:1", {"id-1", "nb"}, kStart);
  CHECK(asked(ports, "nb:2", {"id-2", "nb"}).empty());
  CHECK_FALSE(asked(ports, "nb:2", {"id-1", "nb"}).empty());
}

TEST_CASE("hosts are the same by name, with or without the domain", "[agent][peers]") {
  CHECK(is_same_host("na", "NA.site"));
  CHECK(is_same_host("na.site", "na"));
  CHECK_FALSE(is_same_host("na", "nab"));
  CHECK_FALSE(is_same_host("10", "10.0.0.7"));
  CHECK_FALSE(is_same_host("", ""));
}

TEST_CASE("addresses of this host are known", "[agent][peers]") {
  using boost::asio::ip::make_address;
  CHECK(is_own_address(make_address("127.0.0.1")));
  CHECK(is_own_address(make_address("::ffff:127.0.0.1")));
  CHECK(is_own_address(make_address("::1")));
  CHECK_FALSE(is_own_address(make_address("192.0.2.1")));
}
