#include <map>

#include "member_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

/// The coordinator on node rank 0 is lost at this moment.
Seat orphan(char name, std::uint32_t nodes = 5) {
  Seat seat{member_options(std::string(1, name))};
  seat.runs(static_cast<std::uint32_t>(name - 'a'), nodes);
  seat.pass(kSecond, true);
  seat.forget();
  seat.loses_link();
  return seat;
}

void gets_votes(Seat& seat, const std::vector<std::uint32_t>& node_ranks, std::uint32_t nodes = 5) {
  for (const auto rank : node_ranks)
    seat.take(seat.member.vote_came(PeerId{rank + 1}, vote_of(rank, nodes), "there", seat.now));
}

}  // namespace

SCENARIO("nobody sits at the coordinator's address yet", "[rendezvous][member]") {
  auto options = member_options();
  options.join_timeout = kSecond * 60;
  Seat seat{options};
  seat.begins();
  seat.pass_in_vain(kSecond * 59);
  THEN("it tries again and again, tells what it waits for, and starts nothing") {
    CHECK(seat.all<DialTo>().size() > 50);  // a second apart at most
    CHECK(seat.all<DialTo>().size() < 250);
    for (const auto& dial : seat.all<DialTo>()) CHECK(dial.to == home());
    CHECK_THAT(seat.told(), Contains("waiting for the coordinator at a:29501") &&
                                Contains("up to 1 min") && Contains("connection refused"));
    CHECK(seat.all<Tell>().size() == 2);  // after 5 s, then every 30 s
    CHECK(seat.all<GiveUp>().empty());
  }
  THEN("it gives up after the join timeout") {
    seat.pass_in_vain(kSecond * 2);
    const auto end = seat.only<GiveUp>();
    CHECK(end.why == GiveUp::Why::unreachable);
    CHECK_THAT(end.text,
               Contains("a:29501") && Contains("1 min") && Contains("connection refused"));
    CHECK(seat.member.phase() == LinkPhase::ended);
  }
}

TEST_CASE("another secret is no use to try again", "[rendezvous][member]") {
  Seat seat;
  seat.begins();
  SECTION("found while dialling") {
    seat.take(seat.member.dial_failed({true, false, "authentication failed"}, seat.now));
  }
  SECTION("found after it") {
    seat.link_up();
    seat.take(seat.member.link_lost("authentication failed", seat.now, true));
  }
  CHECK(seat.only<GiveUp>().why == GiveUp::Why::not_authentic);
  CHECK_THAT(seat.only<GiveUp>().text, Contains("authentication failed"));
}

TEST_CASE("in a running job a stranger at an old address doesn't end it", "[rendezvous][member]") {
  Seat seat = orphan('c');
  seat.take(seat.member.dial_failed({true, false, "authentication failed"}, seat.now));
  CHECK(seat.all<GiveUp>().empty());
  CHECK(seat.member.phase() != LinkPhase::ended);
}

SCENARIO("the coordinator refuses this agent", "[rendezvous][member]") {
  Seat seat;
  seat.begins();
  seat.link_up();
  WHEN("it is for ever") {
    seat.hears(Refused{Refusal::mismatch, "script 'x', here 'y'", {}, true});
    THEN("the user reads both values") {
      CHECK(seat.only<GiveUp>().why == GiveUp::Why::refused);
      CHECK_THAT(seat.only<GiveUp>().text, Contains("a:29501: script 'x', here 'y'"));
    }
  }
  WHEN("it is for now") {
    seat.forget();
    seat.hears(Refused{Refusal::not_coordinator, "not yet", {}, false});
    THEN("it tries again a little later") {
      CHECK(seat.all<Hang>().size() == 1);
      CHECK(seat.all<DialTo>().empty());
      seat.pass(kSecond);
      CHECK(seat.all<DialTo>().size() == 1);
    }
  }
  WHEN("it knows where the coordinator is") {
    seat.forget();
    seat.hears(Refused{Refusal::moved, "moved", {"d", 29'600}, false});
    seat.pass(Millis{50});
    THEN("that one is called, and remembered") {
      CHECK(seat.only<DialTo>().to == HostPort{"d", 29'600});
      CHECK(seat.member.coordinator() == HostPort{"d", 29'600});
    }
  }
}

SCENARIO("a running member is refused for ever", "[rendezvous][member]") {
  Seat seat = orphan('c');
  seat.link_up();
  seat.forget();
  seat.hears(Refused{Refusal::mismatch, "another job", {}, true});
  THEN("its workers go first, then it") {
    CHECK_THAT(seat.only<OrderKill>().why, Contains("another job"));
    CHECK(seat.all<GiveUp>().empty());
    seat.take(seat.member.workers_stopped(false, seat.now));
    CHECK(seat.only<GiveUp>().why == GiveUp::Why::refused);
  }
}

SCENARIO("the coordinator is in this process", "[rendezvous][member]") {
  auto options = member_options("a");
  options.hosts = true;
  Seat seat{options};
  seat.begins();
  CHECK(seat.only<DialTo>().here);
  seat.link_up();
  seat.welcome();
  seat.is_assigned(0);
  seat.starts();
  REQUIRE(seat.member.holding() == Holding::running);
  seat.forget();
  WHEN("it steps down") {
    seat.take(seat.member.stepped_down("minority", seat.now));
    THEN("the others are called, never the own address") {
      CHECK_THAT(seat.told(), Contains("coordinator no more: minority"));
      seat.pass_in_vain(kSecond * 5);
      CHECK_FALSE(seat.all<DialTo>().empty());
      for (const auto& dial : seat.all<DialTo>()) {
        CHECK_FALSE(dial.here);
        CHECK(dial.to != home());
      }
    }
  }
}

SCENARIO("the coordinator of five nodes is lost", "[rendezvous][member]") {
  // 1.5 × dead: the turn of each standby
  constexpr Millis kSlot{7'500};
  GIVEN("the first standby") {
    Seat seat = orphan('b');
    THEN("it waits for votes, and calls only the old coordinator, until the next slot") {
      seat.pass_in_vain(kSlot - Millis{100});
      for (const auto& dial : seat.all<DialTo>()) CHECK(dial.to == home());
    }
    WHEN("two others vote for it") {
      gets_votes(seat, {2});
      CHECK(seat.all<TakeOver>().empty());
      gets_votes(seat, {4});
      THEN("it is coordinator, of a term of its own, by a majority of the round") {
        const auto win = seat.only<TakeOver>().win;
        CHECK(win.term == Term{2, 2});
        CHECK(win.last == Epoch{{1, 0}, Round{0}});
        CHECK(win.nodes == 5);
        CHECK(win.votes.size() == 3);
        CHECK_THAT(seat.told(), Contains("takes over as coordinator (term 2, round 0)") &&
                                    Contains("3 of 5 nodes"));
        const auto dials = seat.all<DialTo>();
        CHECK(dials.back().here);
        CHECK(dials.back().to == listener_of('b'));
        CHECK(seat.all<OrderKill>().empty());
      }
    }
    WHEN("a vote is withdrawn") {
      gets_votes(seat, {2});
      seat.take(seat.member.vote_gone(PeerId{3}, seat.now));
      gets_votes(seat, {4});
      THEN("it counts no more") { CHECK(seat.all<TakeOver>().empty()); }
    }
    WHEN("its slot is over") {
      gets_votes(seat, {2});
      seat.pass_in_vain(kSlot + Millis{50});
      THEN("a majority makes it coordinator all the same") {
        gets_votes(seat, {4});
        CHECK(seat.all<TakeOver>().size() == 1);
      }
      THEN("it calls the next one") {
        seat.forget();
        seat.pass_in_vain(kSecond);
        const auto dials = seat.all<DialTo>();
        CHECK(std::ranges::count(dials, listener_of('c'), &DialTo::to) > 0);
        CHECK(std::ranges::count(dials, listener_of('b'), &DialTo::to) == 0);
      }
      THEN("it sends those that voted for it there, once its own vote is there") {
        seat.pass(kSecond);
        REQUIRE(seat.member.phase() == LinkPhase::dialing);
        seat.link_up();
        CHECK(seat.all<RefuseVote>().empty());  // that one may refuse it
        seat.pass(kSecond + Millis{50});
        const auto refused = seat.only<RefuseVote>();
        CHECK(refused.peer == PeerId{3});
        CHECK(refused.refused.redirect == seat.all<DialTo>().back().to);
        CHECK_FALSE(refused.refused.for_ever);
      }
    }
  }
  GIVEN("the second standby") {
    Seat seat = orphan('c');
    THEN("it calls the first one, then the old coordinator, from the moment of the loss") {
      CHECK(seat.only<DialTo>().to == listener_of('b'));
      seat.fails();
      seat.pass(Millis{50});
      CHECK(seat.all<DialTo>()[1].to == home());
    }
    THEN("it takes over as soon as a majority calls it: for them the first one is out of reach") {
      gets_votes(seat, {3, 4});
      REQUIRE(seat.all<TakeOver>().size() == 1);
      CHECK(seat.all<TakeOver>()[0].win.term == Term{2, 3});
    }
    THEN("it doesn't for votes of a round that it doesn't know") {
      seat.take(seat.member.vote_came(PeerId{4}, vote_of(3, 5, 1), "there", seat.now));
      seat.take(seat.member.vote_came(PeerId{5}, vote_of(4, 5, 1), "there", seat.now));
      CHECK(seat.all<TakeOver>().empty());
      CHECK(seat.all<RefuseVote>().size() == 2);
    }
    WHEN("its vote waits at the first one") {
      seat.link_up();
      CHECK(seat.last_sent<Join>().vote == Term{1, 0});
      CHECK(seat.last_sent<Join>().holding == Holding::running);
      seat.forget();
      THEN("it waits there until its own slot, then hangs up") {
        seat.pass(kSlot - Millis{50});
        CHECK(seat.all<Hang>().empty());
        seat.pass(Millis{50});
        CHECK(seat.all<Hang>().size() == 1);
        gets_votes(seat, {3, 4});
        CHECK(seat.all<TakeOver>().size() == 1);
      }
      THEN("it sends all that call it to the first one, too") {
        seat.pass(kSecond + Millis{50});
        gets_votes(seat, {3});
        const auto refused = seat.only<RefuseVote>().refused;
        CHECK(refused.refusal == Refusal::not_coordinator);
        CHECK(refused.redirect == listener_of('b'));
        CHECK_THAT(refused.what, Contains("votes for the one at b:29600"));
      }
    }
  }
  GIVEN("two standbys that vote for each other") {
    THEN("the first one takes its vote back and waits") {
      Seat seat = orphan('b');
      seat.pass_in_vain(kSlot);
      seat.pass(kSecond);
      REQUIRE(seat.all<DialTo>().back().to == listener_of('c'));
      seat.link_up();
      seat.forget();
      gets_votes(seat, {2});
      CHECK(seat.all<Hang>().size() == 1);
      CHECK(seat.all<RefuseVote>().empty());
      gets_votes(seat, {4});
      CHECK(seat.all<TakeOver>().size() == 1);
    }
    THEN("the second one keeps its vote where it is") {
      Seat seat = orphan('c');
      seat.link_up();
      seat.forget();
      gets_votes(seat, {1});
      CHECK(seat.all<Hang>().empty());
      CHECK(seat.all<TakeOver>().empty());
    }
  }
  GIVEN("a standby whose predecessors can't be reached") {
    Seat seat = orphan('e');
    for (const char dead : {'b', 'c', 'd'}) {
      CHECK(seat.all<DialTo>().back().to == listener_of(dead));
      seat.fails();
      seat.take(seat.member.tick(seat.now));
    }
    THEN("it waits for votes itself, in the same slot and without a pause") {
      gets_votes(seat, {0, 2});
      CHECK(seat.all<TakeOver>().size() == 1);
      CHECK(seat.now < Instant{std::chrono::hours{3}} + kSecond * 2);
    }
  }
  GIVEN("a standby that waits for votes, and tries those before it") {
    Seat seat = orphan('c');
    seat.fails();
    gets_votes(seat, {3});
    seat.take(seat.member.tick(seat.now));
    seat.pass(kSecond);
    WHEN("one of them takes the call and refuses it") {
      for (int i = 0; i < 20 && seat.all<DialTo>().back().to != listener_of('b'); ++i) {
        seat.fails();
        seat.pass(kSecond);
      }
      seat.link_up();
      seat.hears(Refused{Refusal::not_coordinator, "node b is no standby of it", {}, false});
      THEN("the votes are still here") {
        CHECK(seat.all<RefuseVote>().empty());
        gets_votes(seat, {4});
        CHECK(seat.all<TakeOver>().size() == 1);
      }
    }
  }
  GIVEN("a standby that knows nothing of the round, as it was started again") {
    Seat seat = orphan('e');
    seat.link_up();
    seat.hears(Refused{Refusal::not_coordinator, "node b is no standby of that round", {}, false});
    seat.pass(Millis{100});
    THEN("the next one is called") { CHECK(seat.all<DialTo>().back().to == listener_of('c')); }
  }
  GIVEN("any other node") {
    std::map<std::string, std::size_t> first_called;
    Seat seat = orphan('e');
    for (int slot = 0; slot < 3; ++slot) {
      seat.forget();
      seat.pass_in_vain(Millis{50});
      seat.pass_in_vain(kSlot - Millis{50});
      for (const auto& dial : seat.all<DialTo>()) ++first_called[dial.to.host];
      CHECK(first_called[std::string(1, static_cast<char>('b' + slot))] > 0);
    }
    CHECK(first_called["a"] > 0);  // it may be back
  }
}

SCENARIO("the coordinator of three nodes is lost and none of them can take over",
         "[rendezvous][member]") {
  Seat seat{member_options("c")};
  seat.joins();
  seat.is_assigned(2, 3, false);
  seat.starts();
  seat.forget();
  seat.loses_link();
  seat.pass_in_vain(kSecond * 9);
  THEN("the agent lives on and calls the coordinator's address, which is all it knows") {
    CHECK(seat.all<DialTo>().size() > 5);
    for (const auto& dial : seat.all<DialTo>()) CHECK(dial.to == home());
    CHECK(seat.all<GiveUp>().empty());
    CHECK_THAT(seat.told(), Contains("no other node can take over"));
  }
  THEN("its workers live as long as their lease") {
    CHECK(seat.all<OrderKill>().empty());
    seat.pass_in_vain(kSecond + Millis{50});
    CHECK(seat.all<OrderKill>().size() == 1);
  }
  THEN("votes change nothing: nobody elects a node that others can't reach") {
    gets_votes(seat, {0, 1}, 3);
    seat.pass_in_vain(kSecond);
    CHECK(seat.all<TakeOver>().empty());
  }
}

SCENARIO("the successor is lost, too", "[rendezvous][member]") {
  // c is elected after a; then c is lost.
  Seat seat = orphan('d');
  seat.fails();  // b
  seat.take(seat.member.tick(seat.now));
  REQUIRE(seat.all<DialTo>().back().to == listener_of('c'));
  seat.link_up();
  seat.epoch.term = {2, 3};
  seat.welcome();
  REQUIRE(seat.member.is_connected());
  seat.pass(kSecond);
  seat.forget();
  seat.loses_link();
  THEN("it isn't called as a standby, and what was learned at the first loss is forgotten") {
    CHECK(seat.all<DialTo>().back().to == listener_of('b'));
    seat.fails();
    seat.take(seat.member.tick(seat.now));
    gets_votes(seat, {1, 4});
    CHECK(seat.all<TakeOver>().size() == 1);
  }
}

TEST_CASE("votes that wait where the coordinator is found are sent to it", "[rendezvous][member]") {
  Seat seat = orphan('c');
  gets_votes(seat, {3});
  seat.link_up();
  seat.epoch.term = {2, 2};
  seat.welcome();
  const auto refused = seat.only<RefuseVote>().refused;
  CHECK(refused.redirect == listener_of('b'));
  CHECK_THAT(refused.what, Contains("the coordinator is at b:29600"));
}

SCENARIO("another machine has this node's host name", "[rendezvous][member]") {
  auto options = member_options("vm");
  const Refused taken{Refusal::duplicate, "the node name 'vm' is taken", {}, true};
  GIVEN("a node that was given no name") {
    options.other_name = "vm-1";
    Seat seat{options};
    seat.begins();
    seat.link_up();
    seat.hears(taken);
    THEN("it goes by another name") {
      CHECK_THAT(seat.told(), Contains("called vm, too") && Contains("vm-1"));
      seat.pass(Millis{50});
      seat.link_up();
      CHECK(seat.last_sent<Join>().node.name == "vm-1");
      CHECK(seat.all<GiveUp>().empty());
      WHEN("that is taken, too") {
        seat.hears(taken);
        THEN("it gives up") { CHECK(seat.only<GiveUp>().why == GiveUp::Why::refused); }
      }
    }
  }
  GIVEN("one that was") {
    Seat seat{options};
    seat.begins();
    seat.link_up();
    seat.hears(taken);
    THEN("it gives up") { CHECK(seat.only<GiveUp>().why == GiveUp::Why::refused); }
  }
}

SCENARIO("the line to the coordinator is slow", "[rendezvous][member]") {
  Seat seat{member_options("c")};
  seat.begins();
  CHECK(seat.only<DialTo>().limit == kSecond * 3);
  seat.fails();
  seat.forget();
  seat.pass(kSecond);
  CHECK(seat.all<DialTo>().back().limit == kSecond * 6);  // it may be only slow
}

SCENARIO("a standby knows of a coordinator", "[rendezvous][member]") {
  Seat seat = orphan('e');
  REQUIRE(seat.only<DialTo>().to == listener_of('b'));
  seat.link_up();
  seat.forget();
  const auto knows = [&](const HostPort& where) {
    seat.hears(Refused{Refusal::not_coordinator, "it is there", where, false});
    seat.pass(Millis{50});
  };
  WHEN("it is another one") {
    knows(listener_of('d'));
    THEN("that one is called at once") { CHECK(seat.only<DialTo>().to == listener_of('d')); }
  }
  WHEN("it is the one that was just lost here") {
    knows(home());
    THEN("the standby is asked again soon: it will notice") {
      seat.pass_in_vain(kSecond);
      CHECK(std::ranges::count(seat.all<DialTo>(), listener_of('b'), &DialTo::to) > 0);
    }
  }
  THEN("the workers are left alone meanwhile") {
    CHECK(seat.all<OrderKill>().empty());
    CHECK(seat.member.may_run(seat.now));
  }
}

SCENARIO("somebody asks this agent for a coordinator", "[rendezvous][member]") {
  const auto asked = [](Seat& seat, const Join& join) {
    seat.forget();
    seat.take(seat.member.vote_came(PeerId{9}, join, "there", seat.now));
    return seat.only<RefuseVote>().refused;
  };
  SECTION("that belongs to another job") {
    Seat seat = orphan('b');
    Join join = vote_of(2);
    join.job = "other";
    const auto refused = asked(seat, join);
    CHECK(refused.refusal == Refusal::wrong_job);
    CHECK(refused.for_ever);
    CHECK_THAT(refused.what, Contains("'other'") && Contains("'job'"));
  }
  SECTION("while it knows one") {
    Seat seat;
    seat.runs();
    const auto refused = asked(seat, vote_of(2));
    CHECK(refused.refusal == Refusal::not_coordinator);
    CHECK(refused.redirect == home());
    CHECK_FALSE(refused.for_ever);
  }
  SECTION("that never had a place") {
    Seat seat = orphan('b');
    Join join = vote_of(2);
    join.epoch = {};
    CHECK(asked(seat, join).refusal == Refusal::not_coordinator);
  }
  SECTION("after the end") {
    Seat seat = orphan('b');
    seat.take(seat.member.leaves("over", seat.now));
    CHECK(asked(seat, vote_of(2)).refusal == Refusal::closed);
  }
  SECTION("of two nodes: nobody is a majority") {
    Seat seat = orphan('b', 2);
    CHECK(asked(seat, vote_of(0, 2)).refusal == Refusal::not_coordinator);
    CHECK(seat.all<TakeOver>().empty());
  }
}

SCENARIO("of two nodes the coordinator's is lost", "[rendezvous][member]") {
  Seat seat = orphan('b', 2);
  seat.pass_in_vain(Millis{9'900});
  CHECK(seat.all<OrderKill>().empty());
  seat.pass_in_vain(Millis{100});
  THEN("the survivor ends its workers with its lease") { CHECK(seat.all<OrderKill>().size() == 1); }
  THEN("then itself, in clear words") {
    CHECK(seat.all<GiveUp>().empty());
    seat.take(seat.member.workers_stopped(false, seat.now));
    CHECK(seat.only<GiveUp>().why == GiveUp::Why::no_majority);
    CHECK_THAT(seat.only<GiveUp>().text,
               Contains("a:29501 is lost") && Contains("of 2 nodes") && Contains("no majority"));
  }
}

SCENARIO("of two nodes, with etcd as witness", "[rendezvous][member]") {
  auto options = member_options("b");
  options.has_witness = true;
  Seat seat{options};
  seat.runs(1, 2);
  seat.loses_link();
  seat.pass_in_vain(kSecond * 10);
  CHECK(seat.all<OrderKill>().size() == 1);
  seat.take(seat.member.workers_stopped(false, seat.now));
  THEN("the survivor goes on seeking") {
    CHECK(seat.all<GiveUp>().empty());
    seat.forget();
    seat.take(seat.member.coordinator_is_at({"z", 1}, seat.now));
    seat.pass_in_vain(kSecond);
    CHECK(seat.all<DialTo>()[0].to == HostPort{"z", 1});
  }
}

SCENARIO("a lost coordinator is found again", "[rendezvous][member]") {
  Seat seat = orphan('c');
  seat.pass_in_vain(kSecond * 3);
  seat.forget();
  seat.pass(kSecond);
  REQUIRE(seat.member.phase() == LinkPhase::dialing);
  seat.link_up();
  seat.forget();
  WHEN("it is the same one") {
    seat.welcome();
    seat.acks(seat.last_sent<Beat>().beat);
    THEN("the workers go on") {
      CHECK_THAT(seat.told(), Contains("in contact with the coordinator on a again"));
      CHECK(*seat.member.lease_end() == seat.now + kSecond * 10);
      CHECK(seat.all<OrderKill>().empty());
    }
  }
  WHEN("it is its successor") {
    seat.epoch.term = {2, 2};
    seat.welcome();
    seat.acks(seat.last_sent<Beat>().beat);
    THEN("it is told, and the same workers go on in the same round") {
      CHECK_THAT(seat.told(), Contains("coordinator is now on a (term 2, round 0)"));
      CHECK(seat.member.term() == Term{2, 2});
      CHECK(seat.member.epoch() == Epoch{{1, 0}, Round{0}});
      CHECK(*seat.member.lease_end() == seat.now + kSecond * 10);
    }
    THEN("what the last one still says has no effect") {
      seat.forget();
      seat.hears({{1, 0}, Round{0}}, Stop{});
      seat.hears({{1, 0}, Round{9}}, Assigned{});
      CHECK(seat.log.empty());
    }
    AND_WHEN("the last one welcomes it later") {
      seat.loses_link();
      seat.link_up();
      CHECK(seat.last_sent<Join>().vote == Term{2, 2});
      seat.forget();
      seat.hears({{1, 0}, Round{0}}, Welcome{});
      THEN("it hangs up") {
        CHECK_FALSE(seat.member.is_connected());
        CHECK(seat.all<Hang>().size() == 1);
        CHECK(seat.member.term() == Term{2, 2});
      }
    }
  }
}

TEST_CASE("a call that nobody answers is given up", "[rendezvous][member]") {
  Seat seat;
  seat.begins();
  seat.link_up();
  seat.forget();
  seat.pass(kSecond * 5);
  CHECK(seat.all<Hang>().size() == 1);
  seat.pass(kSecond);
  CHECK(seat.all<DialTo>().size() == 1);
}

TEST_CASE("agents that lost the same coordinator don't call all at once", "[rendezvous][member]") {
  std::map<Millis, int> when;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    auto options = member_options();
    options.seed = seed;
    Seat seat{options};
    const Instant start = seat.now;
    seat.begins();
    for (int i = 0; i < 4; ++i) {
      seat.fails();
      const Instant next = seat.member.next_deadline();
      seat.now = next;
      seat.take(seat.member.tick(seat.now));
    }
    ++when[std::chrono::duration_cast<Millis>(seat.now - start)];
  }
  CHECK(when.size() > 20);
}
