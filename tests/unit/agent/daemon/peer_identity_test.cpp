// Which node answers: what its daemon says of itself, compared with the names that are known.
#include "agent/daemon/peer_identity.hpp"

#include "agent/daemon/own_address.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

const Instant kStart{};
constexpr bool kHere = true;
using NodeList = std::vector<std::string>;

SeenNodes of_na(const NodeList& nodes = {"na", "nb", "nc"}) {
  SeenNodes seen{{"id-a", "na"}, 29700};
  seen.set_nodes(nodes);
  return seen;
}

NodeList names(const std::vector<Suspect>& suspects) {
  NodeList list;
  for (const auto& one : suspects) list.push_back(one.node);
  return list;
}

/// Who is to be asked before the daemon that answered for `wanted` is taken for it.
NodeList asked(const SeenNodes& seen, const std::string& wanted, const PeerIdentity& answered,
               Millis later = Millis{0}) {
  return names(seen.suspects(wanted, answered, !kHere, kStart + later));
}

}  // namespace

TEST_CASE("a relay at a node's address made another node carry out what it was asked",
          "[agent][peers]") {
  const auto seen = of_na();
  CHECK(asked(seen, "nb", {"id-c", "nc"}) == NodeList{"nc"});
  CHECK(asked(seen, "nc", {"id-c", "nc"}).empty());
  CHECK(asked(seen, "nb", {"id-c", "nc.site"}) == NodeList{"nc"});
  CHECK_THAT(seen.complaint("nb", "nc", {"id-c", "nc"}),
             Contains("nb is answered by the acc-agent of 'nc', which is the node nc"));
}

TEST_CASE("a relay at the address of a node drained the node that asked", "[agent][peers]") {
  const auto seen = of_na();
  CHECK(seen.is_own_in_disguise("nb", {"id-a", "na"}));
  CHECK_FALSE(seen.is_own_in_disguise("na", {"id-a", "na"}));
  CHECK_FALSE(seen.is_own_in_disguise("na.site:29700", {"id-a", "na"}));
  CHECK_FALSE(seen.is_own_in_disguise("nb", {"id-b", "na"}));  // another host of the same name
  CHECK_FALSE(seen.is_own_in_disguise("nb", {"", "na"}));      // an older acc-agent
}

TEST_CASE("an order for a node whose name leads to this host was carried out here",
          "[agent][peers]") {
  const PeerIdentity own{"id-a", "na"};
  CHECK(names(of_na().suspects("nb", own, kHere, kStart)) == NodeList{"na"});
  CHECK(of_na().suspects("na", own, kHere, kStart).empty());
  CHECK(of_na({"10.0.0.1", "nb"}).suspects("10.0.0.1", own, kHere, kStart).empty());
  CHECK(of_na({"na", "localhost"}).suspects("localhost", own, kHere, kStart).empty());
  auto addresses = of_na({"10.0.0.1", "10.0.0.2"});
  addresses.saw("10.0.0.2", own, kStart);  // over a relay: the direct one is right
  CHECK(addresses.suspects("10.0.0.1", own, kHere, kStart).empty());
}

TEST_CASE("nodes that have other names than their hosts are told apart by who answered for each",
          "[agent][peers]") {
  auto seen = of_na();
  const PeerIdentity third{"id-c", "ip-10-0-0-9"};
  CHECK(asked(seen, "nb", third).empty());  // nothing says that it isn't
  seen.saw("nc", third, kStart);
  CHECK(asked(seen, "nb", third) == NodeList{"nc"});
  CHECK(asked(seen, "nc", third).empty());
  seen.set_nodes({"na", "nb", "nc:29700", "nd"});  // what is known stays
  CHECK(asked(seen, "nb", third) == NodeList{"nc:29700"});
  CHECK(seen.is_answered_by("NC", third, kStart));
  CHECK_FALSE(seen.is_answered_by("nc", third, kStart + Millis{1}));
  seen.saw("nc", {"id-c2", "ip-10-0-0-9"}, kStart);  // started again: not taken for nb any more
  CHECK(asked(seen, "nb", third).empty());
}

TEST_CASE("a node whose daemon has gone kept another one from answering", "[agent][peers]") {
  auto seen = of_na({"10.0.0.2", "10.0.0.3"});
  const PeerIdentity third{"id-c", "nc"};
  seen.saw("10.0.0.2", third, kStart);
  seen.was_absent("10.0.0.2", kStart);
  CHECK(asked(seen, "10.0.0.3", third).empty());
}

TEST_CASE("a node that was too busy to answer was forgotten, and another one taken for it",
          "[agent][peers]") {
  auto seen = of_na({"10.0.0.2", "10.0.0.3"});
  const PeerIdentity third{"id-c", "nc"};
  seen.saw("10.0.0.2", third, kStart);
  seen.was_silent("10.0.0.2", kStart);
  seen.saw("10.0.0.2", {"", ""}, kStart);  // a reply without an identity is none
  const auto at_once = seen.suspects("10.0.0.3", third, !kHere, kStart);
  REQUIRE(names(at_once) == NodeList{"10.0.0.2"});
  CHECK(at_once[0].blocks);
  CHECK(at_once[0].was_silent);
  const auto later = seen.suspects("10.0.0.3", third, !kHere, kStart + Millis{2'000});
  REQUIRE(names(later) == NodeList{"10.0.0.2"});
  CHECK_FALSE(later[0].was_silent);
}

TEST_CASE("a refusal without a sign of who it was kept the real node from being asked",
          "[agent][peers]") {
  auto seen = of_na();
  seen.saw("nc", {"", ""}, kStart);
  CHECK(asked(seen, "nb", {"id-c", "nc"}) == NodeList{"nc"});
}

TEST_CASE("after a reboot a node that is named by its address was taken for another one",
          "[agent][peers]") {
  auto seen = of_na({"10.0.0.2", "10.0.0.3", "10.0.0.4"});
  seen.saw("10.0.0.3", {"id-c", "nc"}, kStart);
  seen.saw("10.0.0.4", {"id-d", "nd"}, kStart);
  const PeerIdentity rebooted{"id-c2", "nc"};
  CHECK(asked(seen, "10.0.0.2", rebooted, Millis{2'000}) == NodeList{"10.0.0.3"});
  CHECK(asked(seen, "10.0.0.3", rebooted, Millis{2'000}).empty());
}

TEST_CASE("a node that is down blocks no order to others but where they may be it",
          "[agent][peers]") {
  auto seen = of_na({"n1", "n2", "n3"});
  const PeerIdentity clone{"id-2", "n1"};  // hosts of one image
  const auto blocks = [&](const std::string& wanted, const PeerIdentity& answered) {
    const auto found = seen.suspects(wanted, answered, !kHere, kStart + Millis{2'000});
    return std::any_of(found.begin(), found.end(), [](const auto& one) { return one.blocks; });
  };
  seen.was_silent("n1", kStart);
  CHECK_FALSE(blocks("n3", {"id-3", "n3"}));
  CHECK_FALSE(blocks("n3", {"id-3", "debian"}));
  CHECK(blocks("n2", clone));
  seen.accept("n2", clone);
  CHECK_FALSE(blocks("n2", clone));
  CHECK_FALSE(blocks("n2", {"id-2b", "n1"}));  // rebooted
  seen.saw("n1", clone, kStart);
  CHECK(blocks("n2", clone));
}

TEST_CASE("a relay that was asked first doesn't keep the real node from answering",
          "[agent][peers]") {
  auto seen = of_na();
  seen.saw("nb", {"id-c", "nc"}, kStart);
  CHECK(asked(seen, "nc", {"id-c", "nc"}).empty());
  CHECK(asked(seen, "nb", {"id-c", "nc"}) == NodeList{"nc"});
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
  CHECK(asked(ports, "nb:2", {"id-1", "nb"}) == NodeList{"nb:1"});
}

TEST_CASE("hosts of one name, or named localhost, were refused for each other", "[agent][peers]") {
  auto seen = of_na({"n1", "n2", "localhost:7001"});
  const PeerIdentity clone{"id-2", "n1"};
  CHECK(asked(seen, "n2", clone) == NodeList{"n1"});
  seen.saw("n1", {"id-1", "n1"}, kStart);
  CHECK(asked(seen, "n2", clone, Millis{1'999}).empty());  // was asked just now
  CHECK(asked(seen, "n2", clone, Millis{2'000}) == NodeList{"n1"});
  CHECK(asked(seen, "n2", {"id-3", "localhost"}).empty());
  CHECK(asked(seen, "localhost:7001", {"id-3", "localhost"}).empty());
}

TEST_CASE("a node named with its port, in capitals or another form is the one of the settings",
          "[agent][peers]") {
  const auto seen = of_na({"na", "nb", "nc", "fd00::1"});
  for (const auto* name : {"nb", "NB", "nb:29700", "Nb:29700"}) {
    CHECK(seen.has(name));
    CHECK(asked(seen, name, {"id-c", "nc"}) == NodeList{"nc"});
  }
  CHECK(seen.has("[FD00:0::1]:29700"));
  CHECK_FALSE(seen.has("nb:29701"));
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
