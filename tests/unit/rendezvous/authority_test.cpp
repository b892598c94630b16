#include "rendezvous/authority.hpp"

#include <catch2/catch.hpp>

namespace acc::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegin{100s};
constexpr Timings kLimits{2s, 10s};

TEST_CASE("a coordinator without a round may act: nobody follows another one",
          "[rendezvous][authority]") {
  const QuorumAuthority authority{kLimits};
  CHECK(authority.may_act(kBegin));
  CHECK(authority.grant(kBegin) == 10s);
  CHECK(authority.may_continue_with(0, 0));
  CHECK_FALSE(authority.loss(kBegin + 1h, kBegin));
}

TEST_CASE("a lease is no longer than a quorum's oldest echo allows", "[rendezvous][authority]") {
  QuorumAuthority authority{kLimits};
  authority.assigned(5);
  CHECK_FALSE(authority.may_act(kBegin));
  authority.echoed(0, kBegin);
  authority.echoed(1, kBegin + 3s);
  CHECK_FALSE(authority.may_act(kBegin + 3s));  // two of five
  authority.echoed(2, kBegin + 1s);
  CHECK(authority.may_act(kBegin + 3s));
  CHECK(authority.grant(kBegin + 3s) == 7s);
  CHECK(authority.proved_at() == kBegin);
  CHECK_FALSE(authority.may_act(kBegin + 10s));
  CHECK(authority.grant(kBegin + 10s) == 0s);
}

TEST_CASE("an elected coordinator acts once a majority has answered", "[rendezvous][authority]") {
  QuorumAuthority authority{kLimits};
  authority.elected(4, {}, kBegin);
  CHECK_FALSE(authority.knows_older_leases());
  CHECK_FALSE(authority.echoed(0, kBegin - 1s));  // written before the election: proves nothing
  CHECK_FALSE(authority.echoed(1, kBegin + 1s));
  CHECK_FALSE(authority.echoed(2, kBegin + 1s));
  CHECK_FALSE(authority.may_act(kBegin + 2s));
  CHECK(authority.echoed(3, kBegin + 1s));
  CHECK(authority.may_act(kBegin + 2s));
  CHECK(authority.knows_older_leases());
  CHECK_FALSE(authority.echoed(0, kBegin + 2s));  // confirmed once
}

TEST_CASE("elected by a round that may not have started, it waits for those of the one before, too",
          "[rendezvous][authority]") {
  QuorumAuthority authority{kLimits};
  authority.elected(5, {3, 2, {NodeRank{0}, NodeRank{1}}}, kBegin);
  for (const std::size_t rank : {0, 2, 3, 4}) CHECK_FALSE(authority.echoed(rank, kBegin + 1s));
  CHECK_FALSE(authority.may_act(kBegin + 2s));
  CHECK(authority.echoed(1, kBegin + 1s));
  CHECK(authority.may_act(kBegin + 2s));
}

TEST_CASE("the minority steps down one lease after its last answer was due",
          "[rendezvous][authority]") {
  QuorumAuthority authority{kLimits};
  authority.assigned(3);
  authority.echoed(0, kBegin);
  authority.echoed(1, kBegin);
  CHECK_FALSE(authority.loss(kBegin + 9s, kBegin));
  authority.echoed(0, kBegin + 9s);
  CHECK_FALSE(authority.loss(kBegin + 11s, kBegin + 5s));  // its phase began only then
  const auto why = authority.loss(kBegin + 11s, kBegin);
  REQUIRE(why);
  CHECK(why->starts_with("only 1 of the 3 nodes"));
}

TEST_CASE("a round keeps so many members that the rest can't elect a coordinator",
          "[rendezvous][authority]") {
  QuorumAuthority authority{kLimits};
  authority.assigned(5);
  CHECK_FALSE(authority.may_continue_with(2, 5));
  CHECK(authority.may_continue_with(3, 5));
  CHECK(authority.may_continue_with(2, 4));
}

TEST_CASE("after a doubt about the clock older proofs count no more", "[rendezvous][authority]") {
  QuorumAuthority quorum{kLimits};
  quorum.assigned(1);
  quorum.echoed(0, kBegin);
  ExternalAuthority external{kLimits};
  external.extended(kBegin + 20s, kBegin);
  for (Authority* authority :
       {static_cast<Authority*>(&quorum), static_cast<Authority*>(&external)}) {
    CHECK(authority->may_act(kBegin + 2s));
    authority->doubt(kBegin + 1s);
    CHECK_FALSE(authority->may_act(kBegin + 2s));
    CHECK(authority->grant(kBegin + 2s) == 0s);
  }
  quorum.echoed(0, kBegin + 1s);
  external.extended(kBegin + 20s, kBegin + 1s);
  CHECK(quorum.may_act(kBegin + 2s));
  CHECK(external.may_act(kBegin + 2s));
}

TEST_CASE("a coordinator by etcd is silent when its lease is over, one by quorum is not",
          "[rendezvous][authority]") {
  ExternalAuthority external{kLimits};
  CHECK_FALSE(external.may_speak(kBegin));
  external.extended(kBegin + 4s, kBegin);
  CHECK(external.may_speak(kBegin));
  CHECK(external.grant(kBegin + 3s) == 10s);  // a successor waits one lease longer
  CHECK_FALSE(external.may_speak(kBegin + 4s));
  QuorumAuthority quorum{kLimits};
  quorum.elected(3, {}, kBegin);
  CHECK_FALSE(quorum.may_act(kBegin));
  CHECK(quorum.may_speak(kBegin));
}

}  // namespace
}  // namespace acc::rendezvous
