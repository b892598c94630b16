// Whether the daemon that answered for a node is that of another one: who is asked, and the
// verdict.
#include "agent/daemon/peer_check.hpp"

#include "agent/daemon/request_shares.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using boost::asio::awaitable;
using Catch::Matchers::Contains;
using End = Sighting::End;

namespace {

/// What each node answers, and who was asked.
struct FakeNetwork {
  std::map<std::string, Sighting> answers;
  std::string leads_here;
  std::vector<std::string> asked{};

  PeerCheck::Network network() {
    return {[this](std::string node, Instant) -> awaitable<Sighting> {
              asked.push_back(node);
              const auto found = answers.find(node);
              co_return found == answers.end() ? Sighting{End::absent, {}} : found->second;
            },
            [this](std::string node, Instant) -> awaitable<bool> { co_return node == leads_here; }};
  }
};

struct Checked {
  explicit Checked(const std::vector<std::string>& nodes) { check.set_nodes(nodes); }
  PeerCheck::Verdict judge(const std::string& node, const PeerIdentity& answered,
                           bool is_here = false) {
    boost::asio::io_context io{1};
    std::optional<PeerCheck::Verdict> verdict;
    boost::asio::co_spawn(io, check.judge(node, {answered, is_here}, Millis{2'000}),
                          [&](const std::exception_ptr& failed, PeerCheck::Verdict made) {
                            REQUIRE_FALSE(failed);
                            verdict = std::move(made);
                          });
    io.run();
    REQUIRE(verdict);
    return *verdict;
  }
  FakeNetwork fake{};
  PeerCheck check{{"id-own", "own"}, 29700, fake.network()};
};

bool is_right(const PeerCheck::Verdict& verdict) {
  return verdict.wrong.empty() && verdict.doubt.empty();
}

const PeerIdentity kA{"id-a", "a"};
const PeerIdentity kB{"id-b", "b"};

}  // namespace

TEST_CASE("an order for b is refused where a answers for it", "[agent][peers]") {
  Checked of{{"a", "b"}};
  of.fake.answers["a"] = {End::answered, kA};
  CHECK_THAT(of.judge("b", kA).wrong, Contains("which is the node a"));
  CHECK(of.fake.asked == std::vector<std::string>{"a"});
  CHECK(is_right(of.judge("a", kA)));
}

TEST_CASE("a node that was crowded out was drained in the place of another one", "[agent][peers]") {
  Checked of{{"a", "b"}};
  of.fake.answers["a"] = {End::silent, {}};
  for (int i = 0; i < 2; ++i) {  // the second time it isn't asked again
    const auto verdict = of.judge("b", kA);
    CHECK(verdict.wrong.empty());
    CHECK_THAT(verdict.doubt, Contains("b is answered by the acc-agent of 'a', which may be"));
    CHECK_THAT(verdict.doubt, Contains("nothing was changed"));
  }
  CHECK(of.fake.asked.size() == 1);
}

TEST_CASE("a node that is down doesn't keep orders from others", "[agent][peers]") {
  Checked of{{"a", "b", "10.0.0.3"}};
  of.fake.answers["a"] = {End::silent, {}};
  CHECK(is_right(of.judge("b", kB)));
  CHECK(is_right(of.judge("10.0.0.3", {"id-c", "c"})));
  CHECK(of.fake.asked.empty());
  of.fake.answers.clear();  // a's host is up, and its daemon isn't
  CHECK(is_right(of.judge("b", kA)));
}

TEST_CASE("one of two hosts with one name was powered off, and the other one took no orders",
          "[agent][peers]") {
  Checked of{{"10.0.0.1", "10.0.0.2"}};
  const PeerIdentity one{"id-1", "image"};
  const PeerIdentity two{"id-2", "image"};
  // A list: both answer.
  of.check.note("10.0.0.1", {End::answered, one});
  of.check.note("10.0.0.2", {End::answered, two});
  of.check.accept_listed("10.0.0.1", {one, false});
  of.check.accept_listed("10.0.0.2", {two, false});
  of.fake.answers["10.0.0.1"] = {End::silent, {}};
  of.check.note("10.0.0.1", {End::silent, {}});
  CHECK(is_right(of.judge("10.0.0.2", two)));
  CHECK_THAT(of.judge("10.0.0.2", one).doubt, Contains("which may be the node 10.0.0.1"));
}

TEST_CASE("a node named by its address was drained in another one's place after a restart",
          "[agent][peers]") {
  Checked of{{"10.0.0.1", "10.0.0.2"}};
  of.check.note("10.0.0.1", {End::answered, kA});
  of.check.note("10.0.0.2", {End::answered, kB});
  of.fake.answers["10.0.0.1"] = {End::answered, kA};
  CHECK_THAT(of.judge("10.0.0.2", kA).wrong, Contains("which is the node 10.0.0.1"));
  of.fake.answers["10.0.0.1"] = {End::silent, {}};
  CHECK_FALSE(of.judge("10.0.0.2", kA).doubt.empty());
}

TEST_CASE("a node that has taken another one's address is asked there", "[agent][peers]") {
  Checked of{{"10.0.0.1", "10.0.0.2"}};
  of.check.note("10.0.0.1", {End::answered, kA});
  CHECK(is_right(of.judge("10.0.0.2", kA)));  // nothing listens at the old one
  CHECK(of.fake.asked == std::vector<std::string>{"10.0.0.1"});
}

TEST_CASE("this node's own name that leads here is right, another node's isn't", "[agent][peers]") {
  Checked of{{"own", "b"}};
  of.fake.leads_here = "own";
  const PeerIdentity own{"id-own", "own"};
  CHECK(is_right(of.judge("own", own, true)));
  CHECK_THAT(of.judge("b", own).wrong, Contains("leads back to this node"));
  CHECK_THAT(of.judge("10.9.9.9", own).wrong, Contains("leads back to this node"));
}

TEST_CASE("of a list that names one daemon twice both rows are refused", "[agent][peers]") {
  Checked of{{"10.0.0.1", "10.0.0.2"}};
  const std::vector<std::string> nodes{"10.0.0.1", "10.0.0.2"};
  const auto since = clock_now();
  for (const auto& node : nodes) of.check.note(node, {End::answered, kA});
  for (std::size_t i = 0; i < 2; ++i)
    CHECK_FALSE(of.check.complaint_in(nodes, {{kA, false}, {kA, false}}, i, since).empty());
  CHECK(of.fake.asked.empty());
}

TEST_CASE("one user's streams took all places of a node, root's too", "[agent][peers]") {
  RequestShares shares;
  std::vector<RequestShares::Share> held;
  const auto fill = [&](uid_t source, const std::string& user, RequestKind kind) {
    std::size_t count = 0;
    while (auto share = take_share(shares, source, user, kind)) {
      held.push_back(std::move(share));
      ++count;
    }
    return count;
  };
  const auto [all, of_source, of_user, at_source] = kStreamLimits;
  CHECK(fill(1, "ann", RequestKind::stream) == at_source);
  CHECK(fill(3, "ann", RequestKind::stream) == of_user - at_source);
  CHECK(fill(7, "ann", RequestKind::stream) == 0);
  CHECK(fill(1, "bob", RequestKind::stream) == of_source - at_source);  // others have their own
  CHECK(held.size() < all);
  // A stop, or a question for the state, of who has all its streams open.
  CHECK(fill(1, "ann", RequestKind::brief) >= 64);
  CHECK(fill(1, "bob", RequestKind::brief) >= 64);
  held.clear();
  CHECK(shares.open("streams/") == 0);
  CHECK(shares.open("brief/") == 0);
  CHECK(fill(1, "ann", RequestKind::stream) == at_source);
}

TEST_CASE("what is followed is a stream, and what is steered isn't", "[agent][peers]") {
  using Path = std::vector<std::string>;
  CHECK(kind_of("GET", Path{"events"}) == RequestKind::stream);
  CHECK(kind_of("GET", Path{"jobs", "x", "logs"}) == RequestKind::stream);
  CHECK(kind_of("HEAD", Path{"jobs", "x", "logs"}) == RequestKind::brief);
  CHECK(kind_of("GET", Path{"jobs", "x"}) == RequestKind::brief);
  CHECK(kind_of("GET", Path{"jobs", "logs"}) == RequestKind::brief);
  CHECK(kind_of("POST", Path{"jobs", "x", "stop"}) == RequestKind::brief);
  CHECK(kind_of("GET", Path{}) == RequestKind::brief);
}
