#include <random>

#include "membership_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

TEST_CASE("node 0 waited at localhost for other machines without a word about that",
          "[rendezvous][membership]") {
  const auto told = [](const std::string& where) {
    auto options = options_for(2, 2);
    options.where = where;
    Desk job{options};
    const auto a = job.comes("a");
    job.pass(kSecond * 6);
    return job.last<Notice>(a).text;
  };
  for (const auto* where : {"localhost:29501", "127.0.1.1:29501", "[::1]:29501"})
    CHECK_THAT(told(where), Contains("that is loopback: nodes on other machines need"));
  CHECK_THAT(told("a:29501"),
             Contains("waiting for other nodes at a:29501") && !Contains("loopback"));
}

TEST_CASE("hosts are sorted as people do", "[rendezvous][membership]") {
  struct Row {
    std::string smaller, larger;
  };
  for (const auto& [smaller, larger] :
       std::vector<Row>{{"node2", "node10"},
                        {"node9", "node10"},
                        {"node01", "node1"},
                        {"node01", "node2"},
                        {"node1-a", "node1-b"},
                        {"rack2-node10", "rack10-node2"},
                        {"a", "b"},
                        {"a", "a1"},
                        {"", "a"},
                        {"", "0"},
                        {"0", "00"},
                        {"7", "a"},
                        {"fd00::2", "fd00::10"},
                        {"fd00:9::1", "fd00:10::1"},
                        {"10.0.0.9", "10.0.0.10"},
                        {"10.0.9.1", "10.0.10.1"},
                        {"n18446744073709551615", "n18446744073709551616"},
                        {"node2.a", "node2.b"}}) {
    CAPTURE(smaller, larger);
    CHECK(natural_less(smaller, larger));
    CHECK_FALSE(natural_less(larger, smaller));
    CHECK_FALSE(natural_less(smaller, smaller));
  }
}

TEST_CASE("the order of hosts is one that a sort may rely on", "[rendezvous][membership]") {
  std::mt19937 dice{20'261'121};
  const std::string letters = "ab019-\xc3";
  const auto name = [&] {
    std::string text(dice() % 6, ' ');
    for (auto& c : text) c = letters[dice() % letters.size()];
    return text;
  };
  std::size_t wrong = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto a = name();
    const auto b = name();
    const auto c = name();
    const bool one_way = a == b ? !natural_less(a, b) : natural_less(a, b) != natural_less(b, a);
    const bool transitive = !(natural_less(a, b) && natural_less(b, c)) || natural_less(a, c);
    wrong += one_way && transitive ? 0 : 1;
  }
  CHECK(wrong == 0);
}

SCENARIO("nodes of a first round get their ranks", "[rendezvous][membership]") {
  GIVEN("hosts that come in any order, with unequal slots") {
    Desk desk{options_for(4, 4)};
    const auto with_slots = [](const std::string& name, std::uint32_t slots) {
      Join join = join_of(name, 4, 4);
      join.slots = slots;
      return join;
    };
    const PeerId node10 = desk.comes(with_slots("node10", 4));
    const PeerId node2 = desk.comes(with_slots("node2", 1));
    const PeerId node1 = desk.comes(with_slots("node1", 8));
    CHECK(desk.count<Assigned>(node1) == 0);
    const PeerId node02 = desk.comes(with_slots("node02", 3));
    THEN("they are numbered by host, each rank once") {
      struct Row {
        PeerId peer;
        std::uint32_t rank, first;
      };
      for (const auto& [peer, rank, first] :
           {Row{node1, 0, 0}, Row{node02, 1, 8}, Row{node2, 2, 11}, Row{node10, 3, 12}}) {
        const auto place = desk.last<Assigned>(peer);
        CHECK(place.node_rank == NodeRank{rank});
        CHECK(place.first_rank == Rank{first});
        CHECK(place.nodes == 4);
        CHECK(place.world_size == WorldSize{16});
        CHECK(place.ledger == RestartLedger{});
        CHECK(place.reason.empty());
        CHECK_FALSE(place.spare);
      }
      CHECK(desk.round() == 0);
      CHECK(desk.stores_reset == 1);
    }
  }
  GIVEN("a static job whose nodes were numbered by the user") {
    Desk desk{options_for(3, 3)};
    const auto wants = [&](const std::string& name, std::optional<std::uint32_t> rank) {
      Join join = join_of(name, 3, 3);
      if (rank) join.wanted = NodeRank{*rank};
      return desk.comes(join);
    };
    const PeerId z = wants("z", 0);
    const PeerId a = wants("a", 2);
    const PeerId m = wants("m", std::nullopt);
    THEN("they have their numbers, and the rest is filled up") {
      CHECK(desk.rank(z) == 0);
      CHECK(desk.rank(a) == 2);
      CHECK(desk.rank(m) == 1);
    }
  }
  GIVEN("an elastic job whose scheduler has an order") {
    auto options = options_for(2, 4);
    options.policy->last_call = kSecond;
    Desk desk{options};
    const auto wants = [&](const std::string& name, std::uint32_t rank) {
      Join join = join_of(name, 2, 4);
      join.wanted = NodeRank{rank};
      return desk.comes(join);
    };
    const PeerId unordered = desk.comes("a");
    const PeerId third = wants("b", 3);
    const PeerId first = wants("c", 1);
    desk.pass(kSecond * 2);
    THEN("that order counts, holes closed; whoever has none comes last") {
      CHECK(desk.rank(first) == 0);
      CHECK(desk.rank(third) == 1);
      CHECK(desk.rank(unordered) == 2);
    }
  }
}

SCENARIO("an elastic job waits for more than its minimum", "[rendezvous][membership]") {
  GIVEN("no --last_call") {
    Desk desk{options_for(2, 4)};
    const PeerId a = desk.comes("a");
    desk.pass(kSecond * 20);
    CHECK(desk.phase() == MembershipPhase::gathering);
    desk.comes("b");
    WHEN("nobody else comes") {
      desk.pass(Millis{950});
      CHECK(desk.phase() == MembershipPhase::gathering);
      desk.pass(Millis{50});
      THEN("it begins after a quiet second") { CHECK(desk.last<Assigned>(a).nodes == 2); }
    }
    WHEN("one comes in that second") {
      desk.pass(Millis{700});
      desk.comes("c");
      desk.pass(Millis{700});
      CHECK(desk.phase() == MembershipPhase::gathering);
      desk.pass(Millis{300});
      THEN("the second begins again") { CHECK(desk.last<Assigned>(a).nodes == 3); }
    }
    WHEN("the maximum is reached") {
      desk.comes("c");
      desk.comes("d");
      THEN("it begins at once") { CHECK(desk.last<Assigned>(a).nodes == 4); }
    }
  }
  GIVEN("a --last_call of 10 s") {
    auto options = options_for(2, 4);
    options.policy->last_call = kSecond * 10;
    Desk desk{options};
    const PeerId a = desk.comes("a");
    desk.comes("b");
    desk.pass(Millis{9'950});
    CHECK(desk.phase() == MembershipPhase::gathering);
    desk.pass(Millis{50});
    CHECK(desk.last<Assigned>(a).nodes == 2);
  }
}

SCENARIO("all members of the last round are back", "[rendezvous][membership]") {
  auto options = options_for(2, 8);
  RunningJob job{options, 3};
  job.says(job.peers[1], WorkerFailed{exited(1, 2)});
  for (const PeerId peer : job.peers) job.says(peer, Stopped{});
  THEN("the next round begins in the same moment, with the same ranks") {
    CHECK(job.phase() == MembershipPhase::assigning);
    CHECK(job.round() == 1);
    for (std::uint32_t i = 0; i < 3; ++i) CHECK(job.rank(job.peers[i]) == i);
  }
}

SCENARIO("more nodes than the maximum come", "[rendezvous][membership]") {
  RunningJob job{2};
  const PeerId spare = job.comes("s");
  THEN("the surplus is told once that it waits") {
    CHECK(job.last<Assigned>(spare).spare);
    job.pass(kSecond * 30);
    CHECK(job.count<Assigned>(spare) == 1);
    CHECK(job.last<HeartbeatAck>(spare).granted == Millis{0});
    CHECK_FALSE(job.membership().is_member(spare));
    CHECK(job.membership().is_member(job.peers[0]));
    AND_THEN("also when a round follows in which it has no place either") {
      job.says(job.peers[0], WorkerFailed{exited(1)});
      job.all_stopped();
      job.next_round_starts();
      CHECK(job.count<Assigned>(spare) == 1);
    }
  }
  THEN("whatever becomes of it, the job goes on") {
    SECTION("it leaves") { job.says(spare, Leave{"asked to"}); }
    SECTION("its connection breaks") { job.breaks(spare); }
    SECTION("it falls silent") { job.falls_silent(spare); }
    SECTION("it says what only members may") {
      job.says(spare, WorkerFailed{exited(1)});
      job.says(spare, Completed{});
      job.says(spare, Stopped{});
      job.says(spare, Ready{});
    }
    job.pass(kSecond * 30);
    CHECK(job.phase() == MembershipPhase::running);
    CHECK(job.count<Stop>(job.peers[0]) == 0);
    job.says(job.peers[0], Completed{});
    job.says(job.peers[1], Completed{});
    CHECK(job.over->outcome == Outcome::succeeded);
  }
  THEN("it learns of the end") {
    for (const PeerId peer : job.peers) job.says(peer, Completed{});
    CHECK(job.last<Close>(spare).exit_code == 0);
  }
}

SCENARIO("a node is lost", "[rendezvous][membership]") {
  GIVEN("a spare") {
    RunningJob job{3};
    const PeerId spare = job.comes("s");
    job.breaks(job.peers[1]);
    job.pass(Millis{300});
    job.all_stopped();
    job.pass(kSecond * 13);
    THEN("it takes the lost one's rank, the others keep theirs") {
      REQUIRE(job.phase() == MembershipPhase::assigning);
      CHECK(job.rank(spare) == 1);
      CHECK(job.rank(job.peers[0]) == 0);
      CHECK(job.rank(job.peers[2]) == 2);
      CHECK_THAT(job.last<Assigned>(spare).reason, Contains("node b"));
    }
  }
  GIVEN("no spare, and a minimum that allows it") {
    RunningJob job{options_for(2, 3), 3};
    job.breaks(job.peers[0]);
    job.pass(Millis{300});
    job.all_stopped();
    job.pass(kSecond * 14);
    THEN("the job shrinks without holes") {
      REQUIRE(job.phase() == MembershipPhase::assigning);
      CHECK(job.last<Assigned>(job.peers[1]).nodes == 2);
      CHECK(job.last<Assigned>(job.peers[1]).world_size == WorldSize{4});
      std::vector<std::uint32_t> ranks{job.rank(job.peers[1]), job.rank(job.peers[2])};
      std::ranges::sort(ranks);
      CHECK(ranks == std::vector<std::uint32_t>{0, 1});
    }
  }
  GIVEN("no spare, and a static job") {
    auto options = options_for(3, 3);
    options.policy->join_timeout = kSecond * 60;
    RunningJob job{options, 3};
    job.breaks(job.peers[2]);
    job.pass(Millis{300});
    job.all_stopped();
    job.pass(kSecond * 20);
    CHECK(job.phase() == MembershipPhase::gathering);
    WHEN("it comes back in time") {
      const PeerId again = job.restarts(job.peers[2]);
      THEN("the round begins, at its old place") {
        CHECK(job.phase() == MembershipPhase::assigning);
        CHECK(job.rank(again) == 2);
      }
    }
    WHEN("it doesn't come back") {
      job.pass(kSecond * 60);
      THEN("the job ends, and says what it lacks") {
        CHECK(job.over->outcome == Outcome::nodes_missing);
        CHECK_THAT(job.over->reason, Contains("only 2 of 3 nodes"));
      }
    }
  }
}

SCENARIO("a member that nobody knows to be dead is missing when a round is formed",
         "[rendezvous][membership]") {
  RunningJob job{options_for(2, 3), 3};
  const PeerId c = job.peers[2];
  job.says(job.peers[0], WorkerFailed{exited(1)});
  job.says(c, Stopped{});
  job.breaks(c);
  const PeerId spare = job.comes("s");
  job.says(job.peers[0], Stopped{});
  job.says(job.peers[1], Stopped{});
  WHEN("a spare would do") {
    job.pass(kSecond * 29);
    CHECK(job.phase() == MembershipPhase::gathering);
    job.pass(kSecond * 2);
    THEN("it is taken after a last call of 30 s") {
      REQUIRE(job.phase() == MembershipPhase::assigning);
      CHECK(job.rank(spare) == 2);
    }
  }
  WHEN("it is back before") {
    job.pass(kSecond * 5);
    const PeerId again = job.returns(c);
    THEN("it has its place, and the spare stays one") {
      REQUIRE(job.phase() == MembershipPhase::assigning);
      CHECK(job.rank(again) == 2);
      CHECK(job.last<Assigned>(spare).spare);
    }
  }
}

SCENARIO("a node joins an elastic job that could be larger", "[rendezvous][membership]") {
  auto options = options_for(2, 3);
  SECTION("by default it waits for the next round") {
    RunningJob job{options, 2};
    const PeerId c = job.comes("c");
    job.pass(kSecond * 60);
    CHECK(job.round() == 0);
    CHECK(job.last<Assigned>(c).spare);
    job.says(job.peers[0], WorkerFailed{exited(1)});
    job.all_stopped();
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(c).nodes == 3);
    CHECK(job.rank(c) == 2);
  }
  SECTION("if the policy says so it asks for a round, which costs no restart") {
    options.policy->scale_up_now = true;
    RunningJob job{options, 2};
    const PeerId c = job.comes("c");
    CHECK_THAT(job.last<Assigned>(c).reason, Contains("its workers stop now"));
    CHECK(job.last<Stop>(job.peers[0]).why == Stop::Why::membership);
    job.all_stopped();
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(c).nodes == 3);
    CHECK(job.membership().ledger() == RestartLedger{});
  }
}

TEST_CASE("a round that stopped for a new node was a failed attempt after a lost connection",
          "[rendezvous][membership]") {
  auto options = options_for(2, 3);
  options.policy->scale_up_now = true;
  RunningJob job{options, 2};
  job.comes("c");
  REQUIRE(job.last<Stop>(job.peers[1]).why == Stop::Why::membership);
  const PeerId again = job.returns(job.peers[1]);
  CHECK(job.last<Stop>(again).why == Stop::Why::membership);
}

// It heard nothing at all until the next round, and did not make the job larger.
SCENARIO("a node joins between the assignment of a round and its start",
         "[rendezvous][membership]") {
  auto options = options_for(2, 3);
  SECTION("by default it is told that it waits") {
    Desk desk{options};
    const PeerId a = desk.comes("a");
    desk.comes("b");
    desk.pass(kSecond * 2);
    REQUIRE(desk.phase() == MembershipPhase::assigning);
    const PeerId c = desk.comes("c");
    desk.all_ready();
    desk.pass(kSecond);
    REQUIRE(desk.count<Assigned>(c) == 1);
    CHECK(desk.last<Assigned>(c).spare);
    CHECK(desk.count<Stop>(a) == 0);
  }
  SECTION("with --scale_up now it gets a place") {
    options.policy->scale_up_now = true;
    Desk desk{options};
    const PeerId a = desk.comes("a");
    desk.comes("b");
    desk.pass(kSecond * 2);
    REQUIRE(desk.phase() == MembershipPhase::assigning);
    const PeerId c = desk.comes("c");
    desk.all_ready();
    desk.pass(kSecond);
    REQUIRE(desk.count<Stop>(a) == 1);
    CHECK(desk.last<Stop>(a).why == Stop::Why::membership);
    desk.all_stopped();
    desk.pass(kSecond);
    REQUIRE(desk.phase() == MembershipPhase::assigning);
    CHECK(desk.last<Assigned>(c).nodes == 3);
  }
}

SCENARIO("a round is assigned and not all answer", "[rendezvous][membership]") {
  Desk desk{options_for(2, 3)};
  std::vector<PeerId> peers;
  for (const auto* name : {"a", "b", "c"}) peers.push_back(desk.comes(name));
  desk.is_ready(peers[0], 40'000);
  desk.is_ready(peers[1]);
  WHEN("one is lost") {
    desk.breaks(peers[2]);
    desk.pass(Millis{300});
    CHECK(desk.phase() == MembershipPhase::gathering);
    desk.pass(kSecond);
    THEN("the others go on, nothing is charged, nobody waits for a lease") {
      REQUIRE(desk.phase() == MembershipPhase::assigning);
      CHECK(desk.round() == 1);
      CHECK(desk.last<Assigned>(peers[0]).nodes == 2);
      CHECK(desk.membership().ledger() == RestartLedger{});
      CHECK(desk.count<Start>(peers[0]) == 0);
    }
  }
  WHEN("one gives its place back") {
    desk.says(peers[2], Stopped{});
    desk.pass(Millis{50});
    THEN("all get a place in a new round") {
      REQUIRE(desk.phase() == MembershipPhase::assigning);
      CHECK(desk.round() == 1);
      CHECK(desk.last<Assigned>(peers[2]).nodes == 3);
    }
  }
  WHEN("one heartbeats and never answers") {
    desk.pass(kSecond * 11);
    THEN("the round is assigned again") { CHECK(desk.round() >= 1); }
  }
}

SCENARIO(
    "after a round that not all had answered a majority of the one before made a job of its own",
    "[rendezvous][membership]") {
  GIVEN(
      "three of five nodes, one of which is lost, and a round in its stead that b hasn't "
      "answered") {
    RunningJob job{options_for(3, 3), 3};
    job.comes("d");
    job.comes("e");
    job.breaks(job.peers[2]);
    job.pass(kSecond * 2);
    job.all_stopped();
    job.pass(kSecond * 15);
    REQUIRE(job.phase() == MembershipPhase::assigning);
    REQUIRE(job.round() == 1);
    WHEN("b is lost, too") {
      job.breaks(job.peers[1]);
      job.pass(kSecond * 30);
      THEN(
          "no round follows, though three nodes are here: b and c don't know of round 1, and may "
          "elect") {
        CHECK(job.phase() == MembershipPhase::gathering);
        CHECK(job.round() == 1);
        CHECK_THAT(job.last<Notice>(job.peers[0]).text,
                   Contains("3 nodes here, enough for a round, but too few of the last round"));
        AND_WHEN("one of them is back") {
          SECTION("that had a place in round 1") { job.returns(job.peers[1]); }
          SECTION("that had one in round 0 alone, and comes after a spare") {
            job.restarts(job.peers[2]);
          }
          job.pass(kSecond * 2);
          CHECK(job.phase() == MembershipPhase::assigning);
          CHECK(job.round() == 2);
        }
        AND_WHEN("none comes back") {
          job.pass(JobPolicy{}.join_timeout);
          THEN("the job ends, and says why") {
            REQUIRE(job.over);
            CHECK(job.over->outcome == Outcome::nodes_missing);
            CHECK_THAT(job.over->reason,
                       Contains("too few nodes of the last round are here to go on") &&
                           Contains("no more rejoined within 10 min"));
          }
        }
      }
    }
  }
}

SCENARIO("the agents that may take over are told to all", "[rendezvous][membership]") {
  SECTION("all who listen, but the coordinator's own") {
    Desk desk{options_for(4, 4)};
    const PeerId a = desk.comes("a");
    desk.comes("b");
    Join deaf = join_of("c", 4, 4);
    deaf.listens = 0;
    desk.comes(deaf);
    Join by_socket = join_of("d", 4, 4);
    by_socket.address.clear();
    desk.comes(by_socket);
    CHECK(desk.last<Assigned>(a).standbys ==
          std::vector<Standby>{{"b", NodeRank{1}, {"address-of-b", 29'600}},
                               {"d", NodeRank{3}, {"socket-of-d", 29'600}}});
  }
  SECTION("at most eight") {
    Desk desk{options_for(20, 20)};
    PeerId last{0};
    for (int i = 0; i < 20; ++i) last = desk.comes("n" + std::to_string(i));
    CHECK(desk.last<Assigned>(last).standbys.size() == kMaxStandbys);
  }
}

TEST_CASE("a thousand nodes get each rank once", "[rendezvous][membership]") {
  constexpr std::uint32_t kNodes = 1'000;
  Desk desk{options_for(kNodes, kNodes)};
  std::vector<PeerId> peers;
  for (std::uint32_t i = 0; i < kNodes; ++i) {
    Join join = join_of("n" + std::to_string(kNodes - i), kNodes, kNodes);
    join.slots = i % 7 + 1;
    peers.push_back(desk.comes(join));
  }
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < kNodes; ++i) {  // n1 came last
    const auto place = desk.last<Assigned>(peers[kNodes - 1 - i]);
    REQUIRE(place.node_rank == NodeRank{i});
    REQUIRE(place.first_rank == Rank{next});
    next += (kNodes - 1 - i) % 7 + 1;
  }
  CHECK(desk.last<Assigned>(peers[0]).world_size == WorldSize{next});
}

TEST_CASE("of rounds that were given up in a row each could elect a coordinator of its own",
          "[rendezvous][membership]") {
  const auto electing = [](const std::vector<Join>& joins) {
    VoteCounter votes;
    std::uint64_t peer = 1;
    for (const auto& join : joins) votes.add({PeerId{peer++}, join, "socket"});
    return votes.result(1).has_value();
  };
  RunningJob job{options_for(3, 3), 3};
  const PeerId b = job.peers[1];
  const PeerId c = job.peers[2];
  CHECK(electing({job.knows(b), job.knows(c)}));
  const auto c_knows = job.knows(c);
  const PeerId d = job.comes("d");
  const PeerId e = job.comes("e");
  job.breaks(c);
  job.pass(kSecond * 2);
  job.all_stopped();
  job.pass(kSecond * 15);
  REQUIRE(job.round() == 1);
  CHECK(job.last<Assigned>(b).established == EstablishedRound{3, NodeRank{1}});
  CHECK(job.last<Assigned>(d).established == EstablishedRound{3, std::nullopt});

  // d and b are two of three of round 1, b and c of round 0: b can't be in both.
  CHECK_FALSE(electing({job.knows(b), job.knows(d)}));
  const auto d_knows = job.knows(d);
  job.breaks(d);
  job.pass(kSecond * 15);
  REQUIRE(job.round() > 1);
  CHECK(job.last<Assigned>(e).established == EstablishedRound{3, std::nullopt});
  CHECK_FALSE(electing({job.knows(b), job.knows(e)}));
  CHECK_FALSE(electing({c_knows, d_knows}));

  for (const PeerId peer : {job.peers[0], b, e}) job.is_ready(peer, 40'000);
  REQUIRE(job.phase() == MembershipPhase::running);
  CHECK(electing({job.knows(b), job.knows(e)}));
}
