#include "membership_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

/// A member of round 4 of n nodes that lost its coordinator.
Join voter(std::uint32_t node_rank, std::uint32_t nodes, NodeState state = NodeState::running) {
  const std::string name(1, static_cast<char>('a' + node_rank));
  Join join = join_of(name, nodes, nodes);
  join.state = state;
  join.epoch = {{1, 0}, Round{4}};
  join.node_rank = NodeRank{node_rank};
  join.first_rank = Rank{node_rank * 2};
  join.nodes = nodes;
  join.ledger = {.restarts = 4, .budget_used = 2, .quick_failures = 0, .without_progress = 0};
  join.vote = {1, 0};
  return join;
}

/// Node rank 1 was elected; its own vote came by no connection.
ElectionResult win_of(const std::vector<Join>& joins) {
  VoteCounter votes;
  std::uint64_t peer = 0;
  for (const auto& join : joins) votes.add({PeerId{peer++}, join, "socket"});
  auto result = votes.result(2);
  REQUIRE(result);
  result->names[NodeRank{0}] = "a";  // it had coordinated
  return *result;
}

}  // namespace

SCENARIO("a node that votes by two connections has completed once", "[rendezvous][membership]") {
  const auto done = NodeState::completed;
  Desk desk{options_for(3, 3), win_of({voter(1, 3, done), voter(2, 3, done), voter(2, 3, done)})};
  CHECK_FALSE(desk.over);
  CHECK(desk.phase() == MembershipPhase::running);
  WHEN("the node whose workers still ran completes, too") {
    desk.comes(voter(0, 3, done));
    THEN("the job has succeeded") {
      REQUIRE(desk.over);
      CHECK(desk.over->outcome == Outcome::succeeded);
    }
  }
}

SCENARIO("a coordinator that hears fewer of its members grants shorter leases",
         "[rendezvous][membership]") {
  RunningJob job{5};
  const PeerId a = job.peers[0];
  job.beat_all();
  job.beat_all();  // with the stamps of a moment ago
  job.heartbeats(a);
  CHECK(job.last<HeartbeatAck>(a).granted == kSecond * 10);
  WHEN("two of five are gone") {
    job.falls_silent(job.peers[3]);
    job.falls_silent(job.peers[4]);
    job.pass(kSecond * 4);
    THEN("it still has its quorum") { CHECK(job.last<HeartbeatAck>(a).granted >= kSecond * 8); }
  }
  WHEN("three are") {
    for (const int i : {2, 3, 4}) job.falls_silent(job.peers[i]);
    std::vector<Millis> granted;
    for (int i = 0; i < 9; ++i) {
      job.pass(kSecond);
      job.heartbeats(a);
      granted.push_back(job.last<HeartbeatAck>(a).granted);
    }
    THEN("each grant ends when they may have elected another one") {
      for (std::size_t i = 1; i < granted.size(); ++i)
        CHECK(granted[i] == granted[i - 1] - kSecond);
      CHECK(granted.back() <= kSecond);
    }
    THEN("it steps down, and says which side it is on") {
      CHECK(job.stepped_down.empty());
      // Nothing is granted any more; it waits a lease since the three were lost, they may be back.
      job.pass(kSecond * 7);
      CHECK_THAT(job.stepped_down, Contains("only 2 of the 5 nodes") && Contains("minority"));
      AND_THEN("it grants, starts and admits nothing any more") {
        job.forget_messages();
        job.beat_all();
        job.says(a, WorkerFailed{exited(1)});
        job.pass(kSecond * 60);
        CHECK(job.messages(a) == 0);
        CHECK(job.messages(job.comes("x")) == 0);
      }
    }
  }
}

TEST_CASE("what lay in the network for long is no contact", "[rendezvous][membership]") {
  RunningJob job{3};
  job.freeze_echo(job.peers[1]);  // its heartbeats come, but none has seen a newer word of ours
  job.freeze_echo(job.peers[2]);
  job.pass(kSecond * 5);
  job.heartbeats(job.peers[0]);
  CHECK(job.last<HeartbeatAck>(job.peers[0]).granted <= kSecond * 6);
  job.pass(kSecond * 6);
  CHECK_THAT(job.stepped_down, Contains("only 1 of the 3 nodes"));
}

TEST_CASE("an echo of what was never written is no contact", "[rendezvous][membership]") {
  RunningJob job{3};
  for (const int i : {1, 2}) job.freeze_echo(job.peers[i]);
  for (int second = 0; second < 12; ++second) {
    for (const int i : {1, 2}) job.says(job.peers[i], Heartbeat{1, ~std::uint64_t{0}});
    job.pass(kSecond);
  }
  CHECK_FALSE(job.stepped_down.empty());
}

SCENARIO("two nodes are parted", "[rendezvous][membership]") {
  RunningJob job{options_for(1, 2), 2};
  job.falls_silent(job.peers[1]);
  job.pass(kSecond * 6);
  job.says(job.peers[0], Stopped{});
  job.pass(kSecond * 10);
  THEN("the coordinator's side goes on after the lease of the other one") {
    CHECK(job.stepped_down.empty());
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(job.peers[0]).nodes == 1);
  }
}

SCENARIO("the coordinator's process is asleep", "[rendezvous][membership]") {
  RunningJob job{3};
  job.beat_all();
  WHEN("for longer than the silence after which a peer is lost") {
    job.sleep(kSecond * 8);
    THEN("nobody is called silent for that") {
      CHECK(job.phase() == MembershipPhase::running);
      job.pass(kSecond * 20);
      CHECK(job.phase() == MembershipPhase::running);
      CHECK(job.round() == 0);
    }
    THEN("whoever stays silent afterwards is") {
      job.falls_silent(job.peers[1]);
      job.pass(kSecond * 5);
      CHECK(job.phase() == MembershipPhase::running);
      job.pass(Millis{50});
      CHECK_THAT(job.last<Stop>(job.peers[0]).reason, Contains("no traffic for 5 s"));
    }
  }
  WHEN("for longer than the lease") {
    job.sleep(kSecond * 11);
    THEN("it has no authority left: another one may be in office") {
      CHECK_FALSE(job.stepped_down.empty());
    }
  }
}

SCENARIO("an agent has been welcomed by a newer coordinator", "[rendezvous][membership]") {
  RunningJob job{3};
  job.breaks(job.peers[1]);
  Join join = job.knows(job.peers[1]);
  join.vote = {2, 3};
  const PeerId again = job.comes(join);
  THEN("this one steps down at once, and lets it go on elsewhere") {
    CHECK(job.last<Refused>(again).refusal == Refusal::stale);
    CHECK_FALSE(job.last<Refused>(again).for_ever);
    CHECK_THAT(refusal(job, again), Contains("term 2") && Contains("here 1"));
    CHECK_THAT(job.stepped_down, Contains("term 2"));
  }
}

SCENARIO("a coordinator is elected by three of five", "[rendezvous][membership]") {
  Desk desk{options_for(5, 5), win_of({voter(1, 5), voter(2, 5), voter(3, 5)})};
  const PeerId c{1};
  const PeerId d{2};
  CHECK(desk.phase() == MembershipPhase::running);
  CHECK(desk.membership().epoch() == Epoch{{2, 2}, Round{4}});
  CHECK(desk.membership().ledger().restarts == 4);
  CHECK(desk.count<Welcome>(c) == 1);
  CHECK(desk.count<Stop>(c) == 0);

  THEN("it grants nothing before a majority has echoed its stamps") {
    desk.heartbeats(c);
    CHECK(desk.last<HeartbeatAck>(c).granted == Millis{0});
    desk.heartbeats(d);
    CHECK(desk.last<HeartbeatAck>(d).granted == Millis{0});
    desk.comes(voter(1, 5));  // its own agent
    desk.beat_all();
    desk.heartbeats(c);
    CHECK(desk.last<HeartbeatAck>(c).granted > kSecond * 9);
  }
  THEN("an echo of the last coordinator's stamps is none") {
    desk.comes(voter(1, 5));
    for (const PeerId peer : {c, d}) desk.says(peer, Heartbeat{7, 0});
    desk.heartbeats(PeerId{3});
    CHECK(desk.last<HeartbeatAck>(c).granted == Millis{0});
  }
  WHEN("one has obeyed the last coordinator's order to stop") {
    desk.comes(voter(1, 5));
    desk.beat_all();
    desk.says(d, Stopped{});
    THEN("the others read of a lease that had run out, though none had") {
      CHECK_THAT(desk.last<Stop>(c).reason,
                 Contains("stopped its workers when the coordinator was lost, or by its order"));
    }
  }
  WHEN("the majority never answers") {
    desk.falls_silent(c);
    desk.falls_silent(d);
    desk.comes(voter(1, 5));
    desk.pass(kSecond * 16);
    THEN("it steps down") { CHECK_FALSE(desk.stepped_down.empty()); }
  }
  WHEN("all come, none is lost") {
    desk.comes(voter(1, 5));
    desk.pass(kSecond);
    const PeerId a = desk.comes(voter(0, 5));
    const PeerId e = desk.comes(voter(4, 5));
    desk.pass(kSecond * 30);
    THEN("no worker is touched") {
      CHECK(desk.phase() == MembershipPhase::running);
      CHECK(desk.round() == 4);
      for (const PeerId peer : {a, c, d, e}) {
        CHECK(desk.count<Stop>(peer) == 0);
        CHECK(desk.last<HeartbeatAck>(peer).granted >= kSecond * 8);
      }
      CHECK(desk.membership().is_member(e));
    }
    AND_WHEN("one loses its contact later") {
      desk.says(d, Stopped{});
      THEN("the change of coordinators is not the reason") {
        CHECK_THAT(desk.last<Stop>(c).reason, Contains("for a lease"));
      }
    }
  }
  WHEN("two don't come") {
    const PeerId b = desk.comes(voter(1, 5));
    desk.beat_all();
    const Instant confirmed = desk.now;
    desk.pass(Millis{8'450});
    CHECK(desk.count<Stop>(c) == 0);
    desk.pass(Millis{100});
    // "node rank 0 lost" told nobody which machine to look at.
    CHECK_THAT(
        desk.last<Stop>(c).reason,
        Contains("node a (node rank 0) lost: did not rejoin after the loss of the coordinator"));
    CHECK(desk.last<Stop>(c).lost.at(0).node == "a");
    desk.all_stopped();
    for (const PeerId peer : {b, c, d}) desk.says(peer, Stopped{});
    THEN("their leases are waited for, counted from the moment of its confirmation") {
      desk.pass(std::chrono::duration_cast<Millis>(confirmed + kSecond * 10 + kSlack - desk.now) -
                Millis{100});
      CHECK(desk.phase() == MembershipPhase::stopping);
      desk.pass(Millis{100});
      CHECK(desk.phase() == MembershipPhase::gathering);
      AND_THEN("the restart is booked on the job's own account") {
        CHECK(desk.membership().ledger().budget_used == 3);
        desk.comes(join_of("x", 5, 5));
        desk.comes(join_of("y", 5, 5));
        CHECK(desk.round() == 5);
        CHECK(desk.last<Assigned>(c).ledger.restarts == 5);
      }
    }
  }
}

SCENARIO("an agent that knows another round took a place in the elected one, and confirmed it",
         "[rendezvous][membership]") {
  GIVEN("b, elected with the vote of c whose connection was dying") {
    Desk desk{options_for(3, 3), win_of({voter(1, 3), voter(2, 3)})};
    desk.comes(voter(1, 3));
    WHEN("c comes from its coordinator, which has assigned it to a later round") {
      auto later = voter(2, 3, NodeState::assigned);
      later.epoch.round = Round{5};
      const PeerId c = desk.comes(later);
      desk.beat_all();
      THEN("its answers confirm nothing") {
        CHECK(desk.last<HeartbeatAck>(c).granted == Millis{0});
        desk.pass(kSecond * 40);
        CHECK_FALSE(desk.stepped_down.empty());
        CHECK(desk.last<Assigned>(c).spare);
      }
    }
    WHEN("c comes back as it was") {
      const PeerId c = desk.comes(voter(2, 3));
      desk.beat_all();
      desk.heartbeats(c);
      THEN("its answers do") { CHECK(desk.last<HeartbeatAck>(c).granted > kSecond * 9); }
    }
    WHEN("one comes that another coordinator had assigned to a round of the same number") {
      auto other = voter(0, 3, NodeState::assigned);
      other.node.name = "q";
      other.epoch.term = {1, 2};
      const PeerId q = desk.comes(other);
      desk.beat_all();
      THEN("it has no part in this one: the place that nobody has come to stays free for a") {
        CHECK_FALSE(desk.membership().is_member(q));
        CHECK(desk.phase() == MembershipPhase::running);
        const PeerId a = desk.comes(voter(0, 3));
        CHECK(desk.membership().is_member(a));
      }
    }
  }
}

SCENARIO("an election finds the round broken", "[rendezvous][membership]") {
  const auto result = win_of({voter(1, 3), voter(2, 3, NodeState::stopped)});
  SECTION("with a restart left it is tried again") {
    Desk desk{options_for(3, 3), result};
    CHECK(desk.phase() == MembershipPhase::stopping);
    const PeerId b = desk.comes(voter(1, 3));
    CHECK(desk.count<Stop>(b) == 1);
    desk.says(b, Stopped{});
    const PeerId a = desk.comes(voter(0, 3, NodeState::stopped));
    desk.pass(kSecond);  // a majority echoes its stamps
    CHECK(desk.phase() == MembershipPhase::assigning);
    CHECK_THAT(desk.last<Assigned>(a).reason, Contains("coordinator was lost"));
  }
  SECTION("with none left the job has failed, and its code says so") {
    Desk desk{options_for(3, 3, 0), result};
    const PeerId b = desk.comes(voter(1, 3));
    desk.says(b, Stopped{});
    desk.comes(voter(0, 3, NodeState::stopped));
    REQUIRE(desk.over);
    CHECK(desk.over->outcome == Outcome::failed);
    CHECK(desk.over->exit_code != 0);
    CHECK_THAT(desk.over->reason, Contains("coordinator was lost"));
  }
}

TEST_CASE("the rank that failed was forgotten with a coordinator that died while others saved",
          "[rendezvous][membership]") {
  auto failure = exited(1, 4);  // of c
  failure.code = 7;
  failure.cause = "exited with code 7";
  failure.node = "c";
  failure.ago = kSecond * 8;
  for (const auto state : {NodeState::running, NodeState::stopped})
    for (const std::uint32_t restarts : {0U, 2U}) {
      auto mine = voter(1, 3, state);
      auto cs = voter(2, 3, state);
      mine.ledger = cs.ledger = {};
      Desk desk{options_for(3, 3, restarts), win_of({mine, cs})};
      const PeerId b = desk.comes(mine);
      const PeerId c{1};
      for (const PeerId peer : {b, c}) desk.says(peer, WorkerFailed{failure});
      if (state == NodeState::running) CHECK_THAT(desk.last<Stop>(b).reason, Contains("code 7"));
      for (const PeerId peer : {b, c}) desk.says(peer, Stopped{});
      for (int second = 0; second < 30 && !desk.over; ++second) {
        desk.beat_all();
        desk.pass(kSecond);
        if (desk.phase() == MembershipPhase::gathering) break;
      }
      if (restarts != 0) {
        desk.comes(join_of("x", 3, 3));
        desk.pass(kSecond * 3);
        CHECK_THAT(desk.last<Assigned>(b).reason, Contains("rank 4 on c exited with code 7"));
        continue;
      }
      REQUIRE(desk.over);
      CHECK(desk.over->exit_code == 7);
      CHECK_THAT(desk.over->reason, Contains("rank 4 on c exited with code 7"));
    }
}

// Simulation, seed 45553: of two nodes one was elected over and over again, and no round began.
TEST_CASE("a launch whose coordinator was killed waited ten minutes for that node",
          "[rendezvous][membership]") {
  for (const bool has_closed : {true, false}) {
    auto result = win_of({voter(1, 3), voter(2, 3)});
    if (has_closed) result.closed_by = "a";
    auto options = options_for(3, 3);
    options.name = "b";
    options.starts_no_node_again = true;
    Desk desk{options, result};
    const PeerId b = desk.comes(voter(1, 3));
    desk.pass(kSecond * 12);  // it did not rejoin, and its lease is over
    for (const PeerId peer : {b, PeerId{1}}) desk.says(peer, Stopped{});
    desk.pass(kSecond * 10);
    CHECK(desk.phase() == (has_closed ? MembershipPhase::closed : MembershipPhase::gathering));
    if (has_closed)
      CHECK_THAT(desk.last<Close>(b).reason, Contains("a lost: closed the connection"));
  }
}

TEST_CASE("a member that comes back between two rounds counts as heard",
          "[rendezvous][membership]") {
  Desk desk{options_for(2, 2),
            win_of({voter(1, 2, NodeState::completed), voter(0, 2, NodeState::stopped)})};
  desk.pass(Millis{50});
  REQUIRE(desk.phase() == MembershipPhase::gathering);
  const PeerId b = desk.comes(voter(1, 2, NodeState::completed));
  SECTION("a round of all begins at once") {
    desk.pass(kSecond * 2);
    CHECK(desk.phase() == MembershipPhase::assigning);
  }
  SECTION("also after one more loss of its connection") {
    desk.breaks(b);
    desk.comes(voter(1, 2, NodeState::completed));
    desk.pass(kSecond * 2);
    CHECK(desk.phase() == MembershipPhase::assigning);
  }
}

TEST_CASE("an election finds that all had completed", "[rendezvous][membership]") {
  Desk desk{options_for(2, 2),
            win_of({voter(1, 2, NodeState::completed), voter(0, 2, NodeState::completed)})};
  REQUIRE(desk.over);
  CHECK(desk.over->outcome == Outcome::succeeded);
  CHECK(desk.count<Close>(PeerId{1}) == 1);
}

TEST_CASE("a voter that knows only an older round is stopped, and told that it waits",
          "[rendezvous][membership]") {
  auto old = voter(3, 5);
  old.epoch.round = Round{3};
  SECTION("once its workers are gone") {
    Desk desk{options_for(5, 5), win_of({voter(1, 5), voter(2, 5), old, voter(4, 5)})};
    CHECK_THAT(desk.last<Stop>(PeerId{2}).reason, Contains("stale round 3, current 4"));
    CHECK(desk.count<Stop>(PeerId{1}) == 0);
    desk.says_of(PeerId{2}, {desk.membership().epoch().term, Round{3}}, Stopped{});
    CHECK(desk.last<Assigned>(PeerId{2}).spare);
  }
  SECTION("or soon, if none is left") {
    old.state = NodeState::stopped;
    Desk desk{options_for(5, 5), win_of({voter(1, 5), voter(2, 5), old, voter(4, 5)})};
    CHECK(desk.count<Stop>(PeerId{2}) == 0);
    desk.pass(kSecond);
    CHECK(desk.last<Assigned>(PeerId{2}).spare);
  }
}

// --scale_up now had no effect any more in a round whose coordinator had been lost.
SCENARIO("a node joins a job that has a new coordinator and could be larger",
         "[rendezvous][membership]") {
  const auto of_four = [](Join join) {
    join.nodes_max = 4;
    return join;
  };
  auto options = options_for(3, 4);
  options.policy->scale_up_now = true;
  Desk desk{options, win_of({of_four(voter(1, 3)), of_four(voter(2, 3))})};
  desk.comes(of_four(voter(1, 3)));
  const PeerId a = desk.comes(of_four(voter(0, 3)));
  const auto is_stopped_for_it = [&] {
    return desk.count<Stop>(a) == 1 && desk.last<Stop>(a).why == Stop::Why::membership;
  };
  SECTION("after all have found it") {
    desk.pass(kSecond * 30);
    desk.comes("x");
    CHECK(is_stopped_for_it());
  }
  SECTION("before: members may still be on their way") {
    desk.pass(kSecond);
    desk.comes("x");
    CHECK(desk.count<Stop>(a) == 0);
    desk.pass(kSecond * 8);
    CHECK(is_stopped_for_it());
  }
}

SCENARIO("the first coordinator is started again while its job lives", "[rendezvous][membership]") {
  auto options = options_for(3, 3);
  options.is_restarted_seed = true;
  GIVEN("members that come back to it") {
    Desk desk{options};
    const PeerId b = desk.comes(voter(1, 3));
    CHECK(desk.messages(b) == 0);  // its vote waits
    const PeerId c = desk.comes(voter(2, 3));
    THEN("a majority makes it their coordinator again, workers untouched") {
      CHECK(desk.membership().epoch() == Epoch{{2, 0}, Round{4}});
      for (const PeerId peer : {b, c}) {
        CHECK(desk.count<Welcome>(peer) == 1);
        CHECK(desk.count<Stop>(peer) == 0);
      }
    }
  }
  GIVEN("members that elected another one") {
    Desk desk{options};
    const PeerId a = desk.comes(join_of("a", 3, 3));
    const PeerId b = desk.comes(voter(1, 3));
    desk.moves_to({"c", 29'600});
    THEN("everybody here is sent there") {
      for (const PeerId peer : {a, b}) {
        CHECK(desk.last<Refused>(peer).refusal == Refusal::moved);
        CHECK(desk.last<Refused>(peer).redirect == HostPort{"c", 29'600});
        CHECK_FALSE(desk.last<Refused>(peer).for_ever);
      }
      CHECK_THAT(desk.stepped_down, Contains("c:29600"));
    }
  }
  GIVEN("agents without a past, all at once") {
    Desk desk{options};
    std::vector<PeerId> peers;
    for (const auto* name : {"a", "b", "c"}) peers.push_back(desk.comes(name));
    THEN("no round begins before old leases are over and a successor could have told of himself") {
      desk.pass(kSecond * 15 + kSlack - Millis{100});
      CHECK(desk.phase() == MembershipPhase::gathering);
      desk.pass(Millis{100});
      CHECK(desk.phase() == MembershipPhase::assigning);
    }
  }
}

TEST_CASE("a running coordinator isn't moved by a word", "[rendezvous][membership]") {
  RunningJob job{3};
  job.moves_to({"c", 29'600});
  CHECK(job.phase() == MembershipPhase::running);
  CHECK(job.messages(job.peers[0]) == 0);
}

TEST_CASE("a new round's number is above any that somebody here has heard of",
          "[rendezvous][membership]") {
  RunningJob job{options_for(2, 3), 2};
  auto traveller = voter(2, 3, NodeState::stopped);
  traveller.nodes_min = 2;
  traveller.epoch.round = Round{9};
  traveller.vote = {1, 0};
  job.comes(traveller);
  job.says(job.peers[0], WorkerFailed{exited(1)});
  job.all_stopped();
  CHECK(job.round() == 10);
}

SCENARIO("a successor, too, keeps a quorum of the round that all knew",
         "[rendezvous][membership]") {
  GIVEN(
      "b, which took over round 4 of a, b, c, and a round with d in place of a that c hasn't "
      "answered") {
    Desk desk{options_for(3, 3), win_of({voter(1, 3), voter(2, 3)})};
    const PeerId b = desk.comes(voter(1, 3));
    const PeerId c{1};
    desk.beat_all();
    desk.pass(kSecond * 9);
    REQUIRE(desk.count<Stop>(c) == 1);
    for (const PeerId peer : {b, c}) desk.says(peer, Stopped{});
    desk.comes("d");
    desk.comes("e");
    desk.pass(kSecond * 20);
    REQUIRE(desk.phase() == MembershipPhase::assigning);
    const auto round = desk.round();
    WHEN("c is lost, too") {
      desk.breaks(c);
      desk.pass(kSecond * 30);
      THEN("no round follows until one is back: a and c don't know of this one, and may elect") {
        CHECK(desk.phase() == MembershipPhase::gathering);
        CHECK(desk.round() == round);
        SECTION("the one that was lost now") { desk.returns(c); }
        SECTION("the one that had coordinated, which hadn't come since the election") {
          desk.comes("a");
        }
        desk.pass(kSecond * 2);
        CHECK(desk.phase() == MembershipPhase::assigning);
        CHECK(desk.round() == round + 1);
      }
    }
  }
}
