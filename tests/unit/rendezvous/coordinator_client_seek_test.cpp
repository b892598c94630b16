#include <map>

#include "coordinator_client_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

/// The coordinator on node rank 0 is lost at this moment.
ClientDesk orphan(char name, std::uint32_t nodes = 5, bool is_closed_by_peer = false) {
  ClientDesk desk{client_options(std::string(1, name))};
  desk.runs(static_cast<std::uint32_t>(name - 'a'), nodes);
  desk.pass(kSecond, true);
  desk.forget();
  desk.loses_link(is_closed_by_peer);
  return desk;
}

void gets_votes(ClientDesk& desk, const std::vector<std::uint32_t>& node_ranks,
                std::uint32_t nodes = 5) {
  for (const auto rank : node_ranks)
    desk.take(desk.client.vote_received(PeerId{rank + 1}, vote_of(rank, nodes), "there", desk.now));
}

}  // namespace

SCENARIO("nobody sits at the coordinator's address yet", "[rendezvous][member]") {
  auto options = client_options();
  options.join_timeout = kSecond * 60;
  ClientDesk desk{options};
  desk.begins();
  desk.pass_in_vain(kSecond * 59);
  THEN("it tries again and again, tells what it waits for, and starts nothing") {
    CHECK(desk.all<DialTo>().size() > 50);  // a second apart at most
    CHECK(desk.all<DialTo>().size() < 250);
    for (const auto& dial : desk.all<DialTo>()) CHECK(dial.to == seed_endpoint());
    CHECK_THAT(desk.told(), Contains("waiting for the coordinator at a:29501") &&
                                Contains("up to 1 min") && Contains("connection refused"));
    CHECK(desk.all<Tell>().size() == 2);  // after 5 s, then every 30 s
    CHECK(desk.all<GiveUp>().empty());
  }
  THEN("it gives up after the join timeout") {
    desk.pass_in_vain(kSecond * 2);
    const auto end = desk.only<GiveUp>();
    CHECK(end.why == GiveUp::Why::unreachable);
    CHECK_THAT(end.text,
               Contains("a:29501") && Contains("1 min") && Contains("connection refused"));
    CHECK(desk.client.phase() == LinkPhase::ended);
  }
}

TEST_CASE("another secret is no use to try again", "[rendezvous][member]") {
  ClientDesk desk;
  desk.begins();
  SECTION("found while dialling") {
    desk.take(desk.client.dial_failed({true, false, "authentication failed"}, desk.now));
  }
  SECTION("found after it") {
    desk.link_up();
    desk.take(desk.client.link_lost({"authentication failed", true}, desk.now));
  }
  CHECK(desk.only<GiveUp>().why == GiveUp::Why::not_authentic);
  CHECK_THAT(desk.only<GiveUp>().text, Contains("authentication failed"));
}

TEST_CASE("in a running job a stranger at an old address doesn't end it", "[rendezvous][member]") {
  ClientDesk desk = orphan('c');
  desk.take(desk.client.dial_failed({true, false, "authentication failed"}, desk.now));
  CHECK(desk.all<GiveUp>().empty());
  CHECK(desk.client.phase() != LinkPhase::ended);
}

SCENARIO("the coordinator refuses this agent", "[rendezvous][member]") {
  ClientDesk desk;
  desk.begins();
  desk.link_up();
  WHEN("it is for ever") {
    desk.hears(Refused{Refusal::mismatch, "script 'x', here 'y'", {}, true});
    THEN("the user reads both values") {
      CHECK(desk.only<GiveUp>().why == GiveUp::Why::refused);
      CHECK_THAT(desk.only<GiveUp>().text, Contains("a:29501: script 'x', here 'y'"));
    }
  }
  WHEN("it is for now") {
    desk.forget();
    desk.hears(Refused{Refusal::not_coordinator, "not yet", {}, false});
    THEN("it tries again a little later") {
      CHECK(desk.all<Hang>().size() == 1);
      CHECK(desk.all<DialTo>().empty());
      desk.pass(kSecond);
      CHECK(desk.all<DialTo>().size() == 1);
    }
  }
  WHEN("it knows where the coordinator is") {
    desk.forget();
    desk.hears(Refused{Refusal::moved, "moved", {"d", 29'600}, false});
    desk.pass(Millis{50});
    THEN("that one is called, and remembered") {
      CHECK(desk.only<DialTo>().to == HostPort{"d", 29'600});
      CHECK(desk.client.coordinator() == HostPort{"d", 29'600});
    }
  }
}

SCENARIO("a running member is refused for ever", "[rendezvous][member]") {
  ClientDesk desk = orphan('c');
  desk.link_up();
  desk.forget();
  desk.hears(Refused{Refusal::mismatch, "another job", {}, true});
  THEN("its workers go first, then it") {
    CHECK_THAT(desk.only<OrderKill>().why, Contains("another job"));
    CHECK(desk.all<GiveUp>().empty());
    desk.take(desk.client.workers_stopped(false, desk.now));
    CHECK(desk.only<GiveUp>().why == GiveUp::Why::refused);
  }
}

SCENARIO("the coordinator is in this process", "[rendezvous][member]") {
  auto options = client_options("a");
  options.serves_seed = true;
  ClientDesk desk{options};
  desk.begins();
  CHECK(desk.only<DialTo>().here);
  desk.link_up();
  desk.welcome();
  desk.is_assigned(0);
  desk.starts();
  REQUIRE(desk.client.state() == NodeState::running);
  desk.forget();
  WHEN("it steps down") {
    desk.take(desk.client.stepped_down("minority", desk.now));
    THEN("the others are called, never the own address") {
      CHECK_THAT(desk.told(), Contains("no longer the coordinator: minority"));
      desk.pass_in_vain(kSecond * 5);
      CHECK_FALSE(desk.all<DialTo>().empty());
      for (const auto& dial : desk.all<DialTo>()) {
        CHECK_FALSE(dial.here);
        CHECK(dial.to != seed_endpoint());
      }
    }
  }
}

TEST_CASE("where the successor of a coordinator died too, its node was named twice",
          "[rendezvous][member]") {
  ClientDesk desk = orphan('c');
  desk.link_up();
  desk.hears(Epoch{{2, 1}, Round{0}}, Welcome{"b", 79, kSecond * 5, kSecond * 10});
  REQUIRE(desk.client.is_connected());
  desk.loses_link();
  for (const std::uint32_t rank : {3U, 4U}) {
    Join vote = vote_of(rank);
    vote.vote = {2, 1};
    desk.take(desk.client.vote_received(PeerId{rank + 1}, vote, "there", desk.now));
  }
  const auto names = desk.only<TakeOver>().result.names;
  CHECK(names.at(NodeRank{0}) == "a");
  CHECK(names.at(NodeRank{1}) == "b");
}

SCENARIO("the coordinator of five nodes is lost", "[rendezvous][member]") {
  // 1.5 × dead: the turn of each standby
  constexpr Millis kSlot{7'500};
  GIVEN("the first standby") {
    ClientDesk desk = orphan('b');
    THEN("it waits for votes, and calls only the old coordinator, until the next election_window") {
      desk.pass_in_vain(kSlot - Millis{100});
      for (const auto& dial : desk.all<DialTo>()) CHECK(dial.to == seed_endpoint());
    }
    WHEN("two others vote for it") {
      gets_votes(desk, {2});
      CHECK(desk.all<TakeOver>().empty());
      gets_votes(desk, {4});
      THEN("it is coordinator, of a term of its own, by a majority of the round") {
        const auto result = desk.only<TakeOver>().result;
        CHECK(result.term == Term{2, 2});
        CHECK(result.last == Epoch{{1, 0}, Round{0}});
        CHECK(result.nodes == 5);
        CHECK(result.votes.size() == 3);
        CHECK(result.names.size() == 5);
        CHECK(result.names.at(NodeRank{0}) == "a");  // the lost coordinator's node, no standby
        CHECK_THAT(desk.told(), Contains("takes over as coordinator (term 2, round 0)") &&
                                    Contains("3 of 5 nodes"));
        const auto dials = desk.all<DialTo>();
        CHECK(dials.back().here);
        CHECK(dials.back().to == listener_of('b'));
        CHECK(desk.all<OrderKill>().empty());
      }
    }
    WHEN("a vote is withdrawn") {
      gets_votes(desk, {2});
      desk.take(desk.client.vote_withdrawn(PeerId{3}, desk.now));
      gets_votes(desk, {4});
      THEN("it counts no more") { CHECK(desk.all<TakeOver>().empty()); }
    }
    WHEN("its election_window is over") {
      gets_votes(desk, {2});
      desk.pass_in_vain(kSlot + Millis{50});
      THEN("a majority makes it coordinator all the same") {
        gets_votes(desk, {4});
        CHECK(desk.all<TakeOver>().size() == 1);
      }
      THEN("it calls the next one") {
        desk.forget();
        desk.pass_in_vain(kSecond);
        const auto dials = desk.all<DialTo>();
        CHECK(std::ranges::count(dials, listener_of('c'), &DialTo::to) > 0);
        CHECK(std::ranges::count(dials, listener_of('b'), &DialTo::to) == 0);
      }
      THEN("it sends those that voted for it there, once its own vote is there") {
        desk.pass(kSecond);
        REQUIRE(desk.client.phase() == LinkPhase::dialing);
        desk.link_up();
        CHECK(desk.all<RefuseVote>().empty());  // that one may refuse it
        desk.pass(kSecond + Millis{50});
        const auto refused = desk.only<RefuseVote>();
        CHECK(refused.peer == PeerId{3});
        CHECK(refused.refused.redirect == desk.all<DialTo>().back().to);
        CHECK_FALSE(refused.refused.for_ever);
      }
    }
  }
  GIVEN("the second standby") {
    ClientDesk desk = orphan('c');
    THEN("it calls the first one, then the old coordinator, from the moment of the loss") {
      CHECK(desk.only<DialTo>().to == listener_of('b'));
      desk.fails();
      desk.pass(Millis{50});
      CHECK(desk.all<DialTo>()[1].to == seed_endpoint());
    }
    THEN("it takes over as soon as a majority calls it: for them the first one is out of reach") {
      gets_votes(desk, {3, 4});
      REQUIRE(desk.all<TakeOver>().size() == 1);
      CHECK(desk.all<TakeOver>()[0].result.term == Term{2, 3});
    }
    THEN("it knows whether the lost one closed the connection, or may live behind the network") {
      gets_votes(desk, {3, 4});
      CHECK(desk.only<TakeOver>().result.closed_by.empty());
      ClientDesk other = orphan('c', 5, true);
      gets_votes(other, {3, 4});
      CHECK(other.only<TakeOver>().result.closed_by == "a");
    }
    THEN("it doesn't for votes of a round that it doesn't know") {
      desk.take(desk.client.vote_received(PeerId{4}, vote_of(3, 5, 1), "there", desk.now));
      desk.take(desk.client.vote_received(PeerId{5}, vote_of(4, 5, 1), "there", desk.now));
      CHECK(desk.all<TakeOver>().empty());
      CHECK(desk.all<RefuseVote>().size() == 2);
    }
    WHEN("its vote waits at the first one") {
      desk.link_up();
      CHECK(desk.last_sent<Join>().vote == Term{1, 0});
      CHECK(desk.last_sent<Join>().state == NodeState::running);
      desk.forget();
      THEN("it waits there until its own election_window, then hangs up") {
        desk.pass(kSlot - Millis{50});
        CHECK(desk.all<Hang>().empty());
        desk.pass(Millis{50});
        CHECK(desk.all<Hang>().size() == 1);
        gets_votes(desk, {3, 4});
        CHECK(desk.all<TakeOver>().size() == 1);
      }
      THEN("it sends all that call it to the first one, too") {
        desk.pass(kSecond + Millis{50});
        gets_votes(desk, {3});
        const auto refused = desk.only<RefuseVote>().refused;
        CHECK(refused.refusal == Refusal::not_coordinator);
        CHECK(refused.redirect == listener_of('b'));
        CHECK_THAT(refused.what, Contains("votes for the one at b:29600"));
      }
    }
  }
  GIVEN("two standbys that vote for each other") {
    THEN("the first one takes its vote back and waits") {
      ClientDesk desk = orphan('b');
      desk.pass_in_vain(kSlot);
      desk.pass(kSecond);
      REQUIRE(desk.all<DialTo>().back().to == listener_of('c'));
      desk.link_up();
      desk.forget();
      gets_votes(desk, {2});
      CHECK(desk.all<Hang>().size() == 1);
      CHECK(desk.all<RefuseVote>().empty());
      gets_votes(desk, {4});
      CHECK(desk.all<TakeOver>().size() == 1);
    }
    THEN("the second one keeps its vote where it is") {
      ClientDesk desk = orphan('c');
      desk.link_up();
      desk.forget();
      gets_votes(desk, {1});
      CHECK(desk.all<Hang>().empty());
      CHECK(desk.all<TakeOver>().empty());
    }
  }
  GIVEN("a standby whose predecessors can't be reached") {
    ClientDesk desk = orphan('e');
    for (const char dead : {'b', 'c', 'd'}) {
      CHECK(desk.all<DialTo>().back().to == listener_of(dead));
      desk.fails();
      desk.take(desk.client.tick(desk.now));
    }
    THEN("it waits for votes itself, in the same election_window and without a pause") {
      gets_votes(desk, {0, 2});
      CHECK(desk.all<TakeOver>().size() == 1);
      CHECK(desk.now < Instant{std::chrono::hours{3}} + kSecond * 2);
    }
  }
  GIVEN("a standby that waits for votes, and tries those before it") {
    ClientDesk desk = orphan('c');
    desk.fails();
    gets_votes(desk, {3});
    desk.take(desk.client.tick(desk.now));
    desk.pass(kSecond);
    WHEN("one of them takes the call and refuses it") {
      for (int i = 0; i < 20 && desk.all<DialTo>().back().to != listener_of('b'); ++i) {
        desk.fails();
        desk.pass(kSecond);
      }
      desk.link_up();
      desk.hears(Refused{Refusal::not_coordinator, "node b is no standby of it", {}, false});
      THEN("the votes are still here") {
        CHECK(desk.all<RefuseVote>().empty());
        gets_votes(desk, {4});
        CHECK(desk.all<TakeOver>().size() == 1);
      }
    }
  }
  GIVEN("a standby that knows nothing of the round, as it was started again") {
    ClientDesk desk = orphan('e');
    desk.link_up();
    desk.hears(Refused{Refusal::not_coordinator, "node b is no standby of that round", {}, false});
    desk.pass(Millis{100});
    THEN("the next one is called") { CHECK(desk.all<DialTo>().back().to == listener_of('c')); }
  }
  GIVEN("any other node") {
    std::map<std::string, std::size_t> first_called;
    ClientDesk desk = orphan('e');
    for (int election_window = 0; election_window < 3; ++election_window) {
      desk.forget();
      desk.pass_in_vain(Millis{50});
      desk.pass_in_vain(kSlot - Millis{50});
      for (const auto& dial : desk.all<DialTo>()) ++first_called[dial.to.host];
      CHECK(first_called[std::string(1, static_cast<char>('b' + election_window))] > 0);
    }
    CHECK(first_called["a"] > 0);  // it may be back
  }
}

SCENARIO("the coordinator of three nodes is lost and none of them can take over",
         "[rendezvous][member]") {
  ClientDesk desk{client_options("c")};
  desk.joins();
  desk.is_assigned(2, 3, false);
  desk.starts();
  desk.forget();
  desk.loses_link();
  desk.pass_in_vain(kSecond * 9);
  THEN("the agent lives on and calls the coordinator's address, which is all it knows") {
    CHECK(desk.all<DialTo>().size() > 5);
    for (const auto& dial : desk.all<DialTo>()) CHECK(dial.to == seed_endpoint());
    CHECK(desk.all<GiveUp>().empty());
    CHECK_THAT(desk.told(), Contains("no other node can take over"));
  }
  THEN("its workers live as long as their lease") {
    CHECK(desk.all<OrderKill>().empty());
    desk.pass_in_vain(kSecond + Millis{50});
    CHECK(desk.all<OrderKill>().size() == 1);
  }
  THEN("votes change nothing: nobody elects a node that others can't reach") {
    gets_votes(desk, {0, 1}, 3);
    desk.pass_in_vain(kSecond);
    CHECK(desk.all<TakeOver>().empty());
  }
}

SCENARIO("the successor is lost, too", "[rendezvous][member]") {
  // c is elected after a; then c is lost.
  ClientDesk desk = orphan('d');
  desk.fails();  // b
  desk.take(desk.client.tick(desk.now));
  REQUIRE(desk.all<DialTo>().back().to == listener_of('c'));
  desk.link_up();
  desk.epoch.term = {2, 3};
  desk.welcome();
  REQUIRE(desk.client.is_connected());
  desk.pass(kSecond);
  desk.forget();
  desk.loses_link();
  THEN("it isn't called as a standby, and what was learned at the first loss is forgotten") {
    CHECK(desk.all<DialTo>().back().to == listener_of('b'));
    desk.fails();
    desk.take(desk.client.tick(desk.now));
    gets_votes(desk, {1, 4});
    CHECK(desk.all<TakeOver>().size() == 1);
  }
}

TEST_CASE("votes that wait where the coordinator is found are sent to it", "[rendezvous][member]") {
  ClientDesk desk = orphan('c');
  gets_votes(desk, {3});
  desk.link_up();
  desk.epoch.term = {2, 2};
  desk.welcome();
  const auto refused = desk.only<RefuseVote>().refused;
  CHECK(refused.redirect == listener_of('b'));
  CHECK_THAT(refused.what, Contains("the coordinator is at b:29600"));
}

SCENARIO("another machine has this node's host name", "[rendezvous][member]") {
  auto options = client_options("vm");
  const Refused taken{Refusal::duplicate, "the node name 'vm' is taken", {}, true};
  GIVEN("a node that was given no name") {
    options.other_name = "vm-1";
    ClientDesk desk{options};
    desk.begins();
    desk.link_up();
    desk.hears(taken);
    THEN("it goes by another name") {
      CHECK_THAT(desk.told(), Contains("called vm, too") && Contains("vm-1"));
      desk.pass(Millis{50});
      desk.link_up();
      CHECK(desk.last_sent<Join>().node.name == "vm-1");
      CHECK(desk.all<GiveUp>().empty());
      WHEN("that is taken, too") {
        desk.hears(taken);
        THEN("it gives up") { CHECK(desk.only<GiveUp>().why == GiveUp::Why::refused); }
      }
    }
  }
  GIVEN("one that was") {
    ClientDesk desk{options};
    desk.begins();
    desk.link_up();
    desk.hears(taken);
    THEN("it gives up") { CHECK(desk.only<GiveUp>().why == GiveUp::Why::refused); }
  }
}

SCENARIO("the line to the coordinator is slow", "[rendezvous][member]") {
  ClientDesk desk{client_options("c")};
  desk.begins();
  CHECK(desk.only<DialTo>().limit == kSecond * 3);
  desk.fails();
  desk.forget();
  desk.pass(kSecond);
  CHECK(desk.all<DialTo>().back().limit == kSecond * 6);  // it may be only slow
}

SCENARIO("a standby knows of a coordinator", "[rendezvous][member]") {
  ClientDesk desk = orphan('e');
  REQUIRE(desk.only<DialTo>().to == listener_of('b'));
  desk.link_up();
  desk.forget();
  const auto knows = [&](const HostPort& where) {
    desk.hears(Refused{Refusal::not_coordinator, "it is there", where, false});
    desk.pass(Millis{50});
  };
  WHEN("it is another one") {
    knows(listener_of('d'));
    THEN("that one is called at once") { CHECK(desk.only<DialTo>().to == listener_of('d')); }
  }
  WHEN("it is the one that was just lost here") {
    knows(seed_endpoint());
    THEN("the standby is asked again soon: it will notice") {
      desk.pass_in_vain(kSecond);
      CHECK(std::ranges::count(desk.all<DialTo>(), listener_of('b'), &DialTo::to) > 0);
    }
  }
  THEN("the workers are left alone meanwhile") {
    CHECK(desk.all<OrderKill>().empty());
    CHECK(desk.client.may_run(desk.now));
  }
}

SCENARIO("somebody asks this agent for a coordinator", "[rendezvous][member]") {
  const auto asked = [](ClientDesk& desk, const Join& join) {
    desk.forget();
    desk.take(desk.client.vote_received(PeerId{9}, join, "there", desk.now));
    return desk.only<RefuseVote>().refused;
  };
  SECTION("that belongs to another job") {
    ClientDesk desk = orphan('b');
    Join join = vote_of(2);
    join.job = "other";
    const auto refused = asked(desk, join);
    CHECK(refused.refusal == Refusal::wrong_job);
    CHECK(refused.for_ever);
    CHECK_THAT(refused.what, Contains("'other'") && Contains("'job'"));
  }
  SECTION("while it knows one") {
    ClientDesk desk;
    desk.runs();
    const auto refused = asked(desk, vote_of(2));
    CHECK(refused.refusal == Refusal::not_coordinator);
    CHECK(refused.redirect == seed_endpoint());
    CHECK_FALSE(refused.for_ever);
  }
  SECTION("that never had a place") {
    ClientDesk desk = orphan('b');
    Join join = vote_of(2);
    join.epoch = {};
    CHECK(asked(desk, join).refusal == Refusal::not_coordinator);
  }
  SECTION("after the end") {
    ClientDesk desk = orphan('b');
    desk.take(desk.client.leaves("over", desk.now));
    CHECK(asked(desk, vote_of(2)).refusal == Refusal::closed);
  }
  SECTION("of two nodes: nobody is a majority") {
    ClientDesk desk = orphan('b', 2);
    CHECK(asked(desk, vote_of(0, 2)).refusal == Refusal::not_coordinator);
    CHECK(desk.all<TakeOver>().empty());
  }
}

SCENARIO("of two nodes the coordinator's is lost", "[rendezvous][member]") {
  ClientDesk desk = orphan('b', 2);
  desk.pass_in_vain(Millis{9'900});
  CHECK(desk.all<OrderKill>().empty());
  desk.pass_in_vain(Millis{100});
  THEN("the survivor ends its workers with its lease") { CHECK(desk.all<OrderKill>().size() == 1); }
  THEN("then itself, in clear words") {
    CHECK(desk.all<GiveUp>().empty());
    desk.take(desk.client.workers_stopped(false, desk.now));
    CHECK(desk.only<GiveUp>().why == GiveUp::Why::no_majority);
    CHECK_THAT(desk.only<GiveUp>().text,
               Contains("a:29501 is lost") && Contains("of 2 nodes") && Contains("no majority"));
  }
}

TEST_CASE("workers that are being stopped were said to go on", "[rendezvous][member]") {
  ClientDesk desk{client_options("b")};
  desk.runs(1, 2);
  const auto told = [&] {
    desk.forget();
    desk.loses_link();
    return desk.told();
  };
  SECTION("a stop was ordered before the coordinator was lost") {
    Stop stop;
    stop.reason = "node a lost";
    desk.hears(stop);
    CHECK_THAT(told(), Contains("lost the coordinator") && !Contains("the workers here go on"));
  }
  SECTION("they run") { CHECK_THAT(told(), Contains("the workers here go on")); }
}

SCENARIO("of two nodes, with etcd as witness", "[rendezvous][member]") {
  auto options = client_options("b");
  options.external_leader = true;
  ClientDesk desk{options};
  desk.runs(1, 2);
  desk.loses_link();
  desk.pass_in_vain(kSecond * 10);
  CHECK(desk.all<OrderKill>().size() == 1);
  desk.take(desk.client.workers_stopped(false, desk.now));
  THEN("the survivor goes on seeking") {
    CHECK(desk.all<GiveUp>().empty());
    desk.forget();
    desk.take(desk.client.coordinator_is_at({"z", 1}, desk.now));
    desk.pass_in_vain(kSecond);
    CHECK(desk.all<DialTo>()[0].to == HostPort{"z", 1});
  }
}

SCENARIO("a lost coordinator is found again", "[rendezvous][member]") {
  ClientDesk desk = orphan('c');
  desk.pass_in_vain(kSecond * 3);
  desk.forget();
  desk.pass(kSecond);
  REQUIRE(desk.client.phase() == LinkPhase::dialing);
  desk.link_up();
  desk.forget();
  WHEN("it is the same one") {
    desk.welcome();
    desk.acks(desk.last_sent<Heartbeat>().heartbeat);
    THEN("the workers go on") {
      CHECK_THAT(desk.told(), Contains("in contact with the coordinator on a again"));
      CHECK(*desk.client.lease_end() == desk.now + kSecond * 10);
      CHECK(desk.all<OrderKill>().empty());
    }
  }
  WHEN("it is its successor") {
    desk.epoch.term = {2, 2};
    desk.welcome();
    desk.acks(desk.last_sent<Heartbeat>().heartbeat);
    THEN("it is told, and the same workers go on in the same round") {
      CHECK_THAT(desk.told(), Contains("coordinator is now on a (term 2, round 0)"));
      CHECK(desk.client.term() == Term{2, 2});
      CHECK(desk.client.epoch() == Epoch{{1, 0}, Round{0}});
      CHECK(*desk.client.lease_end() == desk.now + kSecond * 10);
    }
    THEN("what the last one still says has no effect") {
      desk.forget();
      desk.hears({{1, 0}, Round{0}}, Stop{});
      desk.hears({{1, 0}, Round{9}}, Assigned{});
      CHECK(desk.log.empty());
    }
    AND_WHEN("the last one welcomes it later") {
      desk.loses_link();
      desk.link_up();
      CHECK(desk.last_sent<Join>().vote == Term{2, 2});
      desk.forget();
      desk.hears({{1, 0}, Round{0}}, Welcome{});
      THEN("it hangs up") {
        CHECK_FALSE(desk.client.is_connected());
        CHECK(desk.all<Hang>().size() == 1);
        CHECK(desk.client.term() == Term{2, 2});
      }
    }
  }
}

TEST_CASE("a vote tells of the round before until its own has started", "[rendezvous][member]") {
  const EstablishedRound before{3, NodeRank{1}};
  ClientDesk desk;
  desk.joins();
  CHECK(desk.last_sent<Join>().established == EstablishedRound{});
  Assigned assigned;
  assigned.stamp = 78;
  assigned.node_rank = NodeRank{2};
  assigned.nodes = 5;
  assigned.established = before;
  desk.hears(assigned);
  desk.loses_link();
  desk.pass(kSecond);
  desk.link_up();
  CHECK(desk.last_sent<Join>().established == before);
  desk.welcome();
  desk.hears(assigned);  // its first answer may be lost
  desk.starts();
  REQUIRE(desk.client.state() == NodeState::running);
  desk.loses_link();
  desk.pass(kSecond);
  desk.link_up();
  CHECK(desk.last_sent<Join>().established == EstablishedRound{});
}

TEST_CASE("a call that nobody answers is given up", "[rendezvous][member]") {
  ClientDesk desk;
  desk.begins();
  desk.link_up();
  desk.forget();
  desk.pass(kSecond * 5);
  CHECK(desk.all<Hang>().size() == 1);
  desk.pass(kSecond);
  CHECK(desk.all<DialTo>().size() == 1);
}

TEST_CASE("agents that lost the same coordinator don't call all at once", "[rendezvous][member]") {
  std::map<Millis, int> when;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    auto options = client_options();
    options.seed = seed;
    ClientDesk desk{options};
    const Instant start = desk.now;
    desk.begins();
    for (int i = 0; i < 4; ++i) {
      desk.fails();
      const Instant next = desk.client.next_deadline();
      desk.now = next;
      desk.take(desk.client.tick(desk.now));
    }
    ++when[std::chrono::duration_cast<Millis>(desk.now - start)];
  }
  CHECK(when.size() > 20);
}
