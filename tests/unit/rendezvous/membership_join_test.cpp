#include <functional>

#include "membership_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

/// Round 1 runs on nodes a and b; c, which was lost in round 0, is back with workers of that one.
struct StaleNode : RunningJob {
  explicit StaleNode(MembershipOptions options) : RunningJob{std::move(options), 3} {
    const Join before = knows(peers[2]);
    breaks(peers[2]);
    pass(Millis{300});
    all_stopped();
    pass(kSecond * 14);
    next_round_starts();
    REQUIRE(round() == 1);
    forget_messages();
    stale = comes(before);
    REQUIRE(count<Stop>(stale) > 0);
  }
  PeerId stale{0};
};

}  // namespace

TEST_CASE("whoever doesn't fit is refused with both values, and the running job goes on",
          "[rendezvous][membership]") {
  struct Row {
    std::string name;
    std::function<void(Join&)> change;
    Refusal refusal;
    std::vector<std::string> says;
  };
  const std::vector<Row> rows{
      {"major version", [](Join& j) { j.version_major = 2; }, Refusal::version, {"2.0", "1.0"}},
      {"minor version", [](Join& j) { j.version_minor = 2; }, Refusal::version, {"1.2", "1.0"}},
      {"job", [](Join& j) { j.job = "other"; }, Refusal::wrong_job, {"'other'", "'job'"}},
      {"nodes", [](Join& j) { j.nodes_max = 5; }, Refusal::mismatch, {"3:5", " for 3"}},
      {"slots", [](Join& j) { j.slots = 0; }, Refusal::mismatch, {"'d'", "no worker"}},
      {"rank", [](Join& j) { j.wanted = NodeRank{3}; }, Refusal::mismatch, {"rank 3", "of 3"}},
      {"precision",
       [](Join& j) {
         j.facts[3] = {"precision", "fp16", 8};
       },
       Refusal::mismatch,
       {"'d'", "precision 'fp16'", "'bf16'"}},
      {"nothing",
       [](Join& j) { j.facts.pop_back(); },
       Refusal::mismatch,
       {"precision nothing", "'bf16'"}},
      {"name",
       [](Join& j) {
         j.node = {"b", 2};
       },
       Refusal::duplicate,
       {"node name 'b'", "socket-of-b", "this agent is on d"}},
  };
  auto options = options_for(3, 3);
  options.facts = {{"world size", "6", 7},
                   {"script", "train.py", 7},
                   {"arguments", "--x", 7},
                   {"precision", "bf16", 7}};
  for (const auto& row : rows) {
    DYNAMIC_SECTION("another " << row.name) {
      Desk desk{options};
      const auto with_facts = [&](const std::string& name) {
        Join join = join_of(name, 3, 3);
        join.facts = options.facts;
        return join;
      };
      std::vector<PeerId> peers;
      for (const auto* name : {"a", "b", "c"}) peers.push_back(desk.comes(with_facts(name)));
      desk.all_ready();
      REQUIRE(desk.phase() == MembershipPhase::running);
      desk.forget_messages();

      Join join = with_facts("d");
      row.change(join);
      const PeerId stranger = desk.comes(join);

      const auto refused = desk.last<Refused>(stranger);
      CHECK(refused.refusal == row.refusal);
      CHECK(refused.for_ever);
      for (const auto& text : row.says) CHECK_THAT(refused.what, Contains(text));
      CHECK_THAT(desk.told, Contains(refused.what));  // the coordinator's user reads the same
      CHECK(desk.was_closed(stranger));
      CHECK(desk.messages(stranger) == 1);
      desk.pass(Millis{20'000});
      CHECK(desk.phase() == MembershipPhase::running);
      for (const PeerId peer : peers) CHECK(desk.count<HeartbeatAck>(peer) == desk.messages(peer));
    }
  }
}

SCENARIO("a node whose script's arguments differ, as --log log.$(hostname), was refused",
         "[rendezvous][membership]") {
  auto options = options_for(2, 3);
  options.facts = {{"script", "train.py", 7}, {"arguments", "--log n0", 7}, {"precision", "no", 7}};
  Desk desk{options};
  const auto with = [&](const std::string& name, const JobFact& fact) {
    Join join = join_of(name, 2, 3);
    join.facts = options.facts;
    *std::ranges::find(join.facts, fact.name, &JobFact::name) = fact;
    return join;
  };
  const PeerId a = desk.comes(with("a", options.facts[1]));
  GIVEN("other arguments") {
    const Join other = with("b", {"arguments", "--log n1", 8});
    const PeerId b = desk.comes(other);
    THEN("it joins, and both nodes' users read of it") {
      CHECK(desk.count<Welcome>(b) == 1);
      CHECK(desk.told ==
            "node 'b' joined, but its arguments differ: '--log n1' there, '--log n0' on a. If that "
            "is a mistake, stop the job\n");
      CHECK(desk.last<Notice>(b).text ==
            "warning: this node joined, but its arguments differ: '--log n1' here, '--log n0' on "
            "a. If that is a mistake, stop the job");
      CHECK(desk.count<Notice>(a) == 0);
    }
    THEN("the job runs, and it isn't told again when the node has lost its connection") {
      desk.pass(kSecond * 2);
      desk.all_ready();
      CHECK(desk.phase() == MembershipPhase::running);
      desk.breaks(b);
      CHECK(desk.count<Notice>(desk.returns(b)) == 0);
      CHECK(std::ranges::count(desk.told, '\n') == 1);
    }
    THEN("it is told once if the connection breaks before the first round") {
      CHECK(desk.count<Notice>(desk.comes(other)) == 0);
      CHECK(std::ranges::count(desk.told, '\n') == 1);
    }
    THEN("an agent that is started again reads it, too") {
      desk.breaks(b);
      CHECK(desk.count<Notice>(desk.restarts(b)) == 1);
    }
  }
  GIVEN("another script, and none of the arguments") {
    Join other = with("b", {"script", "eval.py", 8});
    other.facts[1] = {"arguments", "", 8};
    const PeerId b = desk.comes(other);
    THEN("both are named") {
      CHECK_THAT(desk.last<Notice>(b).text,
                 Contains("its script differs: 'eval.py' here, 'train.py' on a; its arguments "
                          "differ: none here, '--log n0' on a. If"));
    }
  }
  GIVEN("arguments so long that they were cut before they differ") {
    const PeerId b = desk.comes(with("b", {"arguments", "--log n0", 8}));
    THEN("it doesn't read that a text differs from itself") {
      CHECK_THAT(desk.last<Notice>(b).text,
                 Contains("its arguments differ behind what is shown: '--log n0' here and on a."));
    }
  }
  GIVEN("the same") {
    const PeerId b = desk.comes(with("b", options.facts[0]));
    THEN("nothing is told") {
      CHECK(desk.count<Notice>(b) == 0);
      CHECK(desk.told.empty());
    }
  }
}

TEST_CASE("of a hundred nodes with arguments of their own, the coordinator names eight",
          "[rendezvous][membership]") {
  auto options = options_for(100, 100);
  options.facts = {{"arguments", "--rank 0", 1000}};
  Desk desk{options};
  for (std::uint64_t rank = 0; rank < 100; ++rank) {
    Join join = join_of("n" + std::to_string(rank), 100, 100);
    join.facts = {{"arguments", "--rank " + std::to_string(rank), 1000 + rank}};
    CHECK(desk.count<Notice>(desk.comes(join)) == (rank == 0 ? 0 : 1));
  }
  CHECK(std::ranges::count(desk.told, '\n') == 8);
  CHECK_THAT(desk.told, Contains("node 'n8'") &&
                            Catch::EndsWith("Further nodes that differ aren't named here\n"));
}

SCENARIO("torchrun's static lines with other worker counts on each machine were refused",
         "[rendezvous][membership]") {
  const auto line = [](const std::string& name, std::uint32_t rank, std::uint32_t slots,
                       bool is_per_node) {
    Join join = join_of(name, 2, 2);
    join.wanted = NodeRank{rank};
    join.slots = slots;
    join.facts = {{"world size", std::to_string(slots * 2), slots * 2}};
    if (is_per_node) join.facts.push_back({"processes per node", std::to_string(slots), slots});
    return join;
  };
  const auto desk_of = [](const Join& own) {
    auto options = options_for(2, 2);
    options.facts = own.facts;
    return Desk{options};
  };
  GIVEN("--nproc_per_node 2 on the first machine") {
    const Join own = line("z", 0, 2, true);
    Desk desk = desk_of(own);
    WHEN("the second one has --nproc_per_node 1, and joins first") {
      const PeerId second = desk.comes(line("b", 1, 1, true));
      const PeerId first = desk.comes(own);
      THEN("the ranks are 0, 1 and 2, in the order of the node ranks") {
        CHECK(desk.last<Assigned>(first).first_rank == Rank{0});
        CHECK(desk.last<Assigned>(second).first_rank == Rank{2});
        CHECK(desk.last<Assigned>(second).world_size == WorldSize{3});
        CHECK(desk.told.empty());
      }
    }
    WHEN("the second one has --num_processes 2, of all machines") {
      THEN("it is refused") {
        CHECK_THAT(refusal(desk, desk.comes(line("b", 1, 1, false))),
                   Contains("world size '2'") && Contains("'4'"));
      }
    }
    WHEN("the second one has --num_processes 4, of all machines") {
      THEN("it joins") { CHECK(desk.count<Welcome>(desk.comes(line("b", 1, 2, false))) == 1); }
    }
  }
  GIVEN("--num_processes 4 on the first machine") {
    Desk desk = desk_of(line("a", 0, 2, false));
    THEN("another total is refused, however it was counted") {
      CHECK_THAT(refusal(desk, desk.comes(line("b", 1, 1, false))), Contains("world size '2'"));
      CHECK_THAT(refusal(desk, desk.comes(line("b", 1, 1, true))), Contains("world size '2'"));
    }
    THEN("--nproc_per_node 2 on the second one is the same total") {
      CHECK(desk.count<Welcome>(desk.comes(line("b", 1, 2, true))) == 1);
    }
  }
}

TEST_CASE("a coordinator alone names the node whose arguments it knows",
          "[rendezvous][membership]") {
  MembershipOptions options;
  options.job = "job";
  options.name = "acc-rendezvous on x";
  Desk desk{options};
  const auto node = [](const std::string& name, std::uint64_t hash) {
    Join join = join_of(name, 2, 2);
    join.facts = {{"arguments", "--of " + name, hash}};
    return join;
  };
  desk.comes(node("b", 1));
  CHECK_THAT(desk.last<Notice>(desk.comes(node("c", 2))).text,
             Contains("'--of c' here, '--of b' on b."));
}

TEST_CASE("the next minor version is let in", "[rendezvous][membership]") {
  Desk desk{options_for(2, 2)};
  Join join = join_of("b", 2, 2);
  join.version_minor = kVersionMinor + 1;
  CHECK(desk.count<Welcome>(desk.comes(join)) == 1);
}

TEST_CASE("the coordinator's user read of a clash of names that solved itself",
          "[rendezvous][membership]") {
  Desk desk{options_for(3, 3)};
  const auto called = [](const std::string& name, const std::string& host,
                         std::uint64_t incarnation) {
    Join join = join_of(name, 3, 3);
    join.host = host;
    join.node.incarnation = incarnation;
    return join;
  };
  desk.comes(called("vm", "vm", 1));
  const PeerId cloned = desk.comes(called("vm", "vm", 2));
  CHECK(desk.last<Refused>(cloned).refusal == Refusal::duplicate);
  CHECK(desk.told.empty());
  CHECK(desk.count<Welcome>(desk.comes(called("vm-1", "vm", 2))) == 1);
  desk.comes(called("mine", "vm", 3));
  desk.comes(called("mine", "other", 4));  // --node_name: it can't take another
  CHECK_THAT(desk.told, Contains("refused an agent: the node name 'mine' is taken"));
}

SCENARIO("an agent that was started again at once was refused for ever, as the last one was ending",
         "[rendezvous][membership]") {
  Desk desk{options_for(2, 2)};
  const auto agent = [](std::uint64_t incarnation) {
    Join join = join_of("b", 2, 2);
    join.host = "machine";  // --node_name
    join.node.incarnation = incarnation;
    return join;
  };
  const PeerId last = desk.comes(agent(1));
  const PeerId next = desk.comes(agent(2));
  CHECK(desk.last<Refused>(next).refusal == Refusal::duplicate);
  CHECK_FALSE(desk.last<Refused>(next).for_ever);
  CHECK(desk.told.empty());
  WHEN("the last one leaves") {
    desk.says(last, Leave{"its acc-launch was killed"});
    THEN("the place is free") { CHECK(desk.count<Welcome>(desk.comes(agent(2))) == 1); }
  }
  WHEN("it runs on for longer than a lease and the grace: they are two") {
    desk.pass(kSecond * 26);
    const PeerId again = desk.comes(agent(2));
    CHECK(desk.last<Refused>(again).for_ever);
    CHECK_THAT(desk.told, Contains("refused an agent: the node name 'b' is taken"));
    THEN("a later start is given its time anew") {
      CHECK_FALSE(desk.last<Refused>(desk.comes(agent(3))).for_ever);
    }
  }
  WHEN("another one comes from elsewhere") {
    Join other = agent(3);
    other.host = "c";
    THEN("it is refused at once") { CHECK(desk.last<Refused>(desk.comes(other)).for_ever); }
  }
}

SCENARIO("two agents of a c10d job give the same rank: the second one was refused",
         "[rendezvous][membership]") {
  Desk desk{options_for(3, 3)};
  const auto wants = [](const std::string& name, std::uint32_t rank) {
    Join join = join_of(name, 3, 3);
    join.wanted = NodeRank{rank};
    join.facts = {{"script", "train.py", 1}};  // no world size: not static
    return join;
  };
  const PeerId head = desk.comes(wants("head", 0));
  const PeerId b = desk.comes(wants("b", 0));
  CHECK_THAT(desk.told, Contains("node rank 0 was given to node 'head' and to node 'b'"));
  desk.told.clear();
  WHEN("the third one does, too") {
    const PeerId a = desk.comes(wants("a", 0));
    THEN("the first one keeps it, and the rest is ordered by host, with no further warning") {
      CHECK(desk.rank(head) == 0);
      CHECK(desk.rank(a) == 1);
      CHECK(desk.rank(b) == 2);
      CHECK(desk.told.empty());
    }
  }
  WHEN("the third one gives a rank that is too high") {
    const PeerId c = desk.comes(wants("c", 7));
    THEN("it comes last") { CHECK(desk.rank(c) == 2); }
  }
  WHEN("the second one returns") {
    desk.returns(b);
    THEN("nothing is said of it") { CHECK(desk.told.empty()); }
  }
  WHEN("the third one doesn't come") {
    desk.pass(kSecond * 6);
    THEN("no rank is said to be missing") {
      CHECK_THAT(desk.last<Notice>(head).text,
                 Contains("2 of 3 nodes here") && !Contains("not come"));
    }
  }
}

SCENARIO("two agents want the same rank", "[rendezvous][membership]") {
  Desk desk{options_for(3, 3)};
  const auto wants = [](const std::string& name, std::uint32_t rank,
                        std::uint64_t incarnation = 1) {
    Join join = join_of(name, 3, 3);
    join.node.incarnation = incarnation;
    join.wanted = NodeRank{rank};
    return join;
  };
  const PeerId first = desk.comes(wants("b", 1));
  WHEN("the first one speaks") {
    const PeerId second = desk.comes(wants("c", 1));
    THEN("the second one is refused, both named") {
      CHECK(desk.last<Refused>(second).refusal == Refusal::duplicate);
      CHECK_THAT(refusal(desk, second), Contains("node rank 1 is taken by node 'b'") &&
                                            Contains("socket-of-b") && Contains("is on c"));
    }
  }
  WHEN("the second one has the first one's name too, as --machine_rank makes it") {
    const PeerId second = desk.comes(wants("b", 1, 2));
    THEN("it reads of the rank that it gave") {
      CHECK_THAT(refusal(desk, second), Contains("node rank 1 is taken"));
    }
  }
  WHEN("the first one has been silent for three heartbeats") {
    desk.falls_silent(first);
    desk.pass(kSecond * 3);
    const PeerId second = desk.comes(wants("c", 1));
    THEN("its rank goes to the second one") { CHECK(desk.count<Welcome>(second) == 1); }
  }
  WHEN("the node comes again with another rank, and leaves") {
    desk.falls_silent(first);
    desk.pass(kSecond * 3);
    const PeerId again = desk.comes(wants("b", 2, 2));
    REQUIRE(desk.count<Welcome>(again) == 1);
    desk.breaks(again);
    THEN("both ranks are free") {
      CHECK(desk.count<Welcome>(desk.comes(wants("x", 1))) == 1);
      CHECK(desk.count<Welcome>(desk.comes(wants("y", 2))) == 1);
    }
  }
}

SCENARIO("a coordinator that stands alone learns of the job from the first agent",
         "[rendezvous][membership]") {
  auto options = options_for(0, 0);
  options.policy.reset();
  Desk desk{options};
  Join join = join_of("a", 2, 3);
  join.facts = {{"precision", "fp8", 7}};
  join.policy = JobPolicy{};
  join.policy->join_timeout = kSecond * 20;
  const PeerId first = desk.comes(join);
  THEN("others must fit to it") {
    CHECK_THAT(refusal(desk, desk.comes(join_of("b", 3, 3))), Contains("2:3") && Contains(" 3 "));
    CHECK_THAT(refusal(desk, desk.comes(join_of("b", 2, 3))), Contains("fp8"));
  }
  THEN("its deadline counts") {
    desk.pass(kSecond * 20);
    CHECK(desk.last<Close>(first).outcome == Outcome::nodes_missing);
  }
}

TEST_CASE("a coordinator that stood alone for an hour gives the first agent all its time",
          "[rendezvous][membership]") {
  auto options = options_for(0, 0);
  options.policy.reset();
  Desk desk{options};
  desk.pass(kSecond * 3'600);
  const PeerId a = desk.comes(join_of("a", 2, 2));
  CHECK_FALSE(desk.over);
  desk.pass(kSecond * 599);
  CHECK_FALSE(desk.over);
  desk.pass(kSecond * 2);
  CHECK(desk.last<Close>(a).outcome == Outcome::nodes_missing);
}

SCENARIO("too few nodes come in time", "[rendezvous][membership]") {
  auto options = options_for(3, 4);
  options.policy->join_timeout = kSecond * 60;
  Desk desk{options};
  const PeerId a = desk.comes("a");
  Join join = join_of("b", 3, 4);
  join.wanted = NodeRank{1};
  const PeerId b = desk.comes(join);
  desk.pass(Millis{59'900});
  CHECK_FALSE(desk.over);
  CHECK_THAT(desk.last<Notice>(a).text, Contains("2 of 3 nodes here") && Contains("a:29501") &&
                                            Contains("up to 1 min") && Contains("rank 0, 2"));
  CHECK(desk.count<Notice>(b) == 2);  // after 5 s and 30 s later
  desk.pass(Millis{100});
  for (const PeerId peer : {a, b}) {
    const auto close = desk.last<Close>(peer);
    CHECK(close.outcome == Outcome::nodes_missing);
    CHECK(close.exit_code == 69);
    CHECK_THAT(close.reason, Contains("only 2 of 3 nodes joined within 1 min"));
  }
  REQUIRE(desk.over);
  AND_WHEN("the third one comes after that") {
    const PeerId late = desk.comes("c");
    THEN("it is told the same end") {
      CHECK(desk.last<Close>(late).outcome == Outcome::nodes_missing);
      CHECK(desk.was_closed(late));
    }
  }
}

SCENARIO("a member's connection breaks while its workers run", "[rendezvous][membership]") {
  RunningJob job{3};
  const PeerId b = job.peers[1];
  job.breaks(b);
  WHEN("it is back within the grace") {
    job.pass(Millis{250});
    const PeerId again = job.returns(b);
    job.pass(kSecond * 20);
    THEN("nothing happens to the round") {
      CHECK(job.phase() == MembershipPhase::running);
      CHECK(job.round() == 0);
      CHECK(job.count<Stop>(job.peers[0]) == 0);
      CHECK(job.last<HeartbeatAck>(again).granted > Millis{8'000});
    }
  }
  WHEN("it is back with all its workers done") {
    job.pass(Millis{100});
    Join join = job.knows(b);
    join.state = NodeState::completed;
    job.comes(join);
    THEN("the round needs only the others") {
      job.says(job.peers[0], Completed{});
      job.says(job.peers[2], Completed{});
      CHECK(job.over->outcome == Outcome::succeeded);
    }
  }
  WHEN("it is back without its workers") {
    job.pass(Millis{100});
    Join join = job.knows(b);
    join.state = NodeState::stopped;
    job.comes(join);
    THEN("the round is over, and it is to blame") {
      CHECK_THAT(job.last<Stop>(job.peers[0]).reason,
                 Contains("node b (node rank 1) stopped its workers"));
    }
  }
  WHEN("it doesn't come back") {
    job.pass(Millis{300});
    THEN("it is lost, and the others are told the ranks that died") {
      const auto stop = job.last<Stop>(job.peers[0]);
      CHECK_THAT(stop.reason, Contains("b (node rank 1)") && Contains("connection reset"));
      CHECK(stop.lost == std::vector<NodeRanks>{{"b", Rank{2}, 2}});
    }
  }
}

SCENARIO("a member loses its connection between Assigned and Start", "[rendezvous][membership]") {
  Desk desk{options_for(2, 2)};
  const PeerId a = desk.comes("a");
  const PeerId b = desk.comes("b");
  desk.is_ready(a, 40'000);
  WHEN("it had not answered yet") {
    desk.breaks(b);
    const PeerId again = desk.returns(b);
    THEN("it is told its place again") {
      CHECK(desk.rank(again) == 1);
      desk.is_ready(again);
      CHECK(desk.phase() == MembershipPhase::running);
    }
  }
  WHEN("the others were started meanwhile") {
    desk.is_ready(b);
    REQUIRE(desk.phase() == MembershipPhase::running);
    desk.breaks(b);
    Join join = desk.knows(b);
    join.state = NodeState::assigned;  // Start never came
    const PeerId again = desk.comes(join);
    desk.is_ready(again);
    THEN("it is started too") {
      CHECK(desk.last<Start>(again).master == HostPort{"address-of-a", 40'000});
      CHECK(desk.last<Start>(again).granted > Millis{0});
    }
  }
}

SCENARIO("an agent is started again while its last one's workers may live",
         "[rendezvous][membership]") {
  RunningJob job{2};
  job.falls_silent(job.peers[1]);
  job.pass(kSecond * 4);
  const PeerId again = job.restarts(job.peers[1]);
  CHECK(job.count<Welcome>(again) == 1);
  CHECK_THAT(job.last<Stop>(job.peers[0]).reason, Contains("its agent was started again"));
  job.all_stopped();
  THEN("the lease of the old one is waited for, then the new one has its rank") {
    job.pass(kSecond * 3);
    CHECK(job.phase() == MembershipPhase::stopping);
    job.pass(kSecond * 10);
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.rank(again) == 1);
    CHECK(job.last<Assigned>(again).ledger.restarts == 1);
  }
}

SCENARIO("an agent comes back from an older round with workers", "[rendezvous][membership]") {
  RunningJob job{options_for(2, 3), 3};
  const PeerId c = job.peers[2];
  const Join before = job.knows(c);
  job.breaks(c);
  job.pass(Millis{300});
  job.all_stopped();
  job.pass(kSecond * 14);
  job.next_round_starts();
  REQUIRE(job.round() == 1);
  job.forget_messages();
  const PeerId again = job.comes(before);
  THEN("it is told to stop them, the running round is left alone") {
    CHECK(job.count<Welcome>(again) == 1);
    CHECK_THAT(job.last<Stop>(again).reason, Contains("stale round 0, current 1"));
    CHECK(job.count<Assigned>(again) == 0);
    CHECK(job.messages(job.peers[0]) == 0);
    CHECK(job.last<Stop>(again).why == Stop::Why::restart);
  }
  WHEN("a round is formed before it has stopped them") {
    job.says(job.peers[0], WorkerFailed{exited(1)});
    for (const int i : {0, 1}) job.says(job.peers[i], Stopped{});
    job.pass(kSecond * 10);
    THEN("it has no place in it") {
      CHECK(job.count<Assigned>(again) == 0);
      AND_THEN("but in the next one, once they are gone") {
        job.says_of(again, {job.membership().epoch().term, Round{0}}, Stopped{});
        job.pass(kSecond * 2);
        job.all_ready();
        if (job.round() == 2) {  // this round went without it
          job.says(job.peers[0], WorkerFailed{exited(1)});
          job.all_stopped();
          job.pass(kSecond * 2);
          job.all_ready();
        }
        CHECK(job.state(again) == NodeState::running);
        CHECK(job.last<Assigned>(again).nodes == 3);
      }
    }
  }
}

// It stayed silent for good: its user saw "stopping the workers here: stale round 0, current 1" and
// then nothing.
SCENARIO("a paused node that was stopped as stale is told that it waits as a spare",
         "[rendezvous][membership]") {
  auto options = options_for(2, 3);
  SECTION("and gets a place when the round is over") {
    StaleNode job{options};
    job.says_of(job.stale, {job.membership().epoch().term, Round{0}}, Stopped{});
    REQUIRE(job.count<Assigned>(job.stale) == 1);
    CHECK(job.last<Assigned>(job.stale).spare);
    CHECK(job.count<Stop>(job.peers[0]) == 0);
    job.pass(kSecond * 30);
    CHECK(job.count<Assigned>(job.stale) == 1);
    job.says(job.peers[0], WorkerFailed{exited(1)});
    job.all_stopped();
    job.pass(kSecond * 2);
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(job.stale).nodes == 3);
  }
  SECTION("or at once, with --scale_up now, but not before its workers are gone") {
    options.policy->scale_up_now = true;
    StaleNode job{options};
    job.pass(kSecond);
    CHECK(job.count<Stop>(job.peers[0]) == 0);
    job.says_of(job.stale, {job.membership().epoch().term, Round{0}}, Stopped{});
    CHECK_THAT(job.last<Assigned>(job.stale).reason, Contains("its workers stop now"));
    CHECK(job.last<Stop>(job.peers[0]).why == Stop::Why::membership);
    job.all_stopped();
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(job.stale).nodes == 3);
  }
}

TEST_CASE("what was said in another term or round has no effect", "[rendezvous][membership]") {
  RunningJob job{2};
  const Epoch now = job.membership().epoch();
  for (const Epoch other : {Epoch{{0, 0}, now.round}, Epoch{{2, 1}, now.round},
                            Epoch{now.term, Round{now.round.value() + 1}}}) {
    job.says_of(job.peers[1], other, WorkerFailed{exited(1)});
    job.says_of(job.peers[1], other, Completed{});
    job.says_of(job.peers[1], other, Stopped{});
    job.says_of(job.peers[0], other, Completed{});
  }
  CHECK(job.phase() == MembershipPhase::running);
  CHECK(job.messages(job.peers[0]) == 0);
}

TEST_CASE("a peer that nobody let in is not heard", "[rendezvous][membership]") {
  RunningJob job{2};
  Join join = join_of("x", 9, 9);
  const PeerId stranger = job.comes(join);
  CHECK_FALSE(job.membership().is_member(stranger));
  job.says(stranger, WorkerFailed{exited(1)});
  job.says(stranger, SignalRequest{15});
  CHECK(job.phase() == MembershipPhase::running);
}
