#include "membership_tools.hpp"

#include <csignal>

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

const Epoch kOldEpoch{{1, 0}, Round{4}};

MembershipOptions by_etcd(std::uint32_t nodes_min, std::uint32_t nodes_max,
                          std::uint32_t term = 1) {
  auto options = options_for(nodes_min, nodes_max);
  options.external_leader = true;
  options.term = {term, 0};
  return options;
}

/// Nodes a, b … of round 4, under the coordinator of term 1.
RoundRecord round_of(std::uint32_t nodes) {
  RoundRecord record{kOldEpoch, {.restarts = 2, .budget_used = 2}, {}};
  for (std::uint32_t i = 0; i < nodes; ++i)
    record.rows.push_back({{std::string(1, static_cast<char>('a' + i)), 1}, Rank{i * 2}, 2});
  return record;
}

Join member(std::uint32_t node_rank, std::uint32_t min, std::uint32_t max,
            NodeState state = NodeState::running) {
  Join join = join_of(std::string(1, static_cast<char>('a' + node_rank)), min, max);
  join.state = state;
  join.epoch = kOldEpoch;
  join.node_rank = NodeRank{node_rank};
  join.first_rank = Rank{node_rank * 2};
  join.nodes = max;
  join.vote = kOldEpoch.term;
  return join;
}

/// The successor, in term 2, of the coordinator of a round on so many nodes.
struct Successor : Desk {
  explicit Successor(std::uint32_t min, std::uint32_t max) : Desk{by_etcd(min, max, 2)} {
    leads_until(Instant::max());
    inherits(round_of(max));
  }
};

}  // namespace

SCENARIO("with etcd no worker starts before the round is written there",
         "[rendezvous][membership]") {
  Desk desk{by_etcd(2, 2)};
  desk.leads_until(Instant::max());
  const auto a = desk.comes("a");
  const auto b = desk.comes("b");
  desk.all_ready();
  REQUIRE(desk.commits.size() == 1);
  const auto& record = desk.commits[0];
  CHECK(record.epoch == Epoch{{1, 0}, Round{0}});
  REQUIRE(record.rows.size() == 2);
  CHECK(record.rows[1] == RoundRecord::Row{{"b", 1}, Rank{2}, 2});
  desk.pass(kSecond * 2);
  CHECK(desk.phase() == MembershipPhase::assigning);
  CHECK(desk.count<Start>(a) == 0);
  WHEN("it is") {
    desk.has_written(record.epoch);
    THEN("all start") {
      CHECK(desk.phase() == MembershipPhase::running);
      CHECK(desk.count<Start>(a) == 1);
      CHECK(desk.last<Start>(b).granted == kSecond * 10);
    }
  }
  WHEN("the answer is for another round") {
    desk.has_written({{1, 0}, Round{3}});
    THEN("nobody starts") { CHECK(desk.count<Start>(a) == 0); }
  }
  WHEN("so late that the leases are half over") {
    desk.pass(kSecond * 4);
    desk.has_written(record.epoch);
    THEN("the places are given anew, with a record of their own") {
      CHECK(desk.count<Start>(a) == 0);
      CHECK(desk.round() == 1);
      desk.all_ready();
      CHECK(desk.commits.back().epoch.round == Round{1});
    }
  }
  WHEN("this node is no longer coordinator by then") {
    desk.leads_until(desk.now);
    desk.has_written(record.epoch);
    THEN("nobody starts") { CHECK(desk.count<Start>(a) == 0); }
  }
}

SCENARIO("a job whose rounds etcd refuses to store ends after the join timeout",
         "[rendezvous][membership]") {
  auto options = by_etcd(2, 2);
  options.policy->join_timeout = kSecond * 60;
  Desk desk{options};
  desk.leads_until(Instant::max());
  desk.comes("a");
  desk.comes("b");
  const auto tries = [&](Millis time) {
    for (const Instant end = desk.now + time; desk.now < end && !desk.over; desk.pass(kSecond))
      desk.all_ready();
  };
  tries(kSecond * 55);
  CHECK(desk.commits.size() > 1);
  CHECK_FALSE(desk.over);
  WHEN("nothing is known of its reason") {
    tries(kSecond * 65);
    THEN("the job ends, and names etcd") {
      REQUIRE(desk.over);
      CHECK(desk.over->outcome == Outcome::nodes_missing);
      CHECK(desk.over->exit_code == 69);
      CHECK(desk.over->reason ==
            "no round has begun within 1 min: etcd has not stored one in time");
    }
  }
  WHEN("etcd has said why") {
    desk.membership().note_etcd_trouble("etcd: write the round: database space exceeded");
    tries(kSecond * 65);
    THEN("the job ends with its words") {
      REQUIRE(desk.over);
      CHECK_THAT(desk.over->reason, Contains("(etcd: write the round: database space exceeded)"));
    }
  }
  WHEN("a round runs in time") {
    desk.all_ready();
    desk.has_written(desk.commits.back().epoch);
    REQUIRE(desk.phase() == MembershipPhase::running);
    desk.pass(kSecond * 65);
    THEN("the time begins again with its end") {
      CHECK_FALSE(desk.over);
      desk.says(PeerId{1}, WorkerFailed{exited(1)});
      desk.all_stopped();
      tries(kSecond * 30);
      CHECK_FALSE(desk.over);
      tries(kSecond * 60);
      CHECK(desk.over);
    }
  }
}

SCENARIO("with etcd a coordinator needs no majority", "[rendezvous][membership]") {
  Desk desk{by_etcd(1, 2)};
  desk.leads_until(Instant::max());
  const auto a = desk.comes("a");
  const auto b = desk.comes("b");
  desk.all_ready();
  desk.has_written(desk.commits.back().epoch);
  desk.falls_silent(b);
  desk.pass(kSecond * 6);
  CHECK(desk.stepped_down.empty());
  CHECK(desk.last<HeartbeatAck>(a).granted == kSecond * 10);
  REQUIRE(desk.count<Stop>(a) == 1);
  desk.says(a, Stopped{});
  THEN("the next round waits for the lease of the lost node") {
    desk.pass(kSecond * 3);
    CHECK(desk.phase() == MembershipPhase::stopping);
    desk.pass(kSecond * 5);
    CHECK(desk.phase() == MembershipPhase::assigning);
    CHECK(desk.last<Assigned>(a).nodes == 1);
  }
}

SCENARIO("what an agent reports while etcd's lease is in doubt counts once it is renewed",
         "[rendezvous][membership]") {
  Desk desk{by_etcd(1, 2)};
  desk.leads_until(Instant::max());
  const auto a = desk.comes("a");
  const auto b = desk.comes("b");
  desk.all_ready();
  desk.has_written(desk.commits.back().epoch);
  desk.leads_until(desk.now);
  desk.says(a, Completed{});
  desk.says(b, Completed{});
  desk.pass(kSecond);
  CHECK(desk.phase() == MembershipPhase::running);
  WHEN("etcd confirms this coordinator") {
    desk.leads_until(Instant::max());
    desk.pass(kSecond);
    THEN("the job has ended well") { CHECK(desk.phase() == MembershipPhase::closed); }
  }
  WHEN("one of them says more than it can have to say") {
    for (int i = 0; i < 20; ++i) desk.says(a, SignalRequest{SIGUSR1});
    THEN("it has to join again") { CHECK(desk.was_closed(a)); }
  }
  WHEN("one of them replays the writes of its workers to the store") {
    for (int i = 0; i < 20; ++i) desk.says(a, KvRestore{"key", "value", 0});
    THEN("the doubt is nothing to it") { CHECK_FALSE(desk.was_closed(a)); }
  }
}

SCENARIO("whom etcd names no more does nothing", "[rendezvous][membership]") {
  Desk desk{by_etcd(1, 2)};
  desk.leads_until(Instant::max());
  const auto a = desk.comes("a");
  const auto b = desk.comes("b");
  desk.all_ready();
  desk.has_written(desk.commits.back().epoch);
  desk.leads_until(desk.now);
  desk.forget_messages();
  desk.beat_all();
  desk.says(a, Completed{});
  desk.says(b, Completed{});
  desk.says(a, WorkerFailed{exited(1)});
  desk.pass(kSecond * 60);
  CHECK(desk.messages(a) == 0);
  CHECK(desk.messages(b) == 0);
  CHECK_FALSE(desk.over);
  const auto late = desk.comes("c");
  CHECK_THAT(refusal(desk, late), Contains("is no longer the coordinator"));
  CHECK_FALSE(desk.last<Refused>(late).for_ever);
}

SCENARIO("a successor by etcd finds the round in the table", "[rendezvous][membership]") {
  Successor job{1, 2};
  CHECK(job.round() == 4);
  WHEN("all members come") {
    const auto a = job.comes(member(0, 1, 2));
    const auto b = job.comes(member(1, 1, 2));
    job.pass(kSecond * 60);
    THEN("no worker notices") {
      CHECK(job.phase() == MembershipPhase::running);
      CHECK(job.count<Stop>(a) + job.count<Stop>(b) == 0);
      CHECK(job.count<Assigned>(a) == 0);
      CHECK(job.last<HeartbeatAck>(b).granted == kSecond * 10);
    }
    THEN("a failure is answered with one more restart than there were") {
      job.says(a, WorkerFailed{exited(1)});
      job.says(a, Stopped{});
      job.says(b, Stopped{});
      job.pass(kSecond * 2);
      CHECK(job.last<Assigned>(a).ledger.restarts == 3);
      CHECK(job.round() == 5);
    }
  }
  WHEN("both have completed meanwhile") {
    job.comes(member(0, 1, 2, NodeState::completed));
    job.comes(member(1, 1, 2, NodeState::completed));
    THEN("the job has succeeded") {
      REQUIRE(job.over);
      CHECK(job.over->outcome == Outcome::succeeded);
    }
  }
  WHEN("one doesn't come") {
    const auto a = job.comes(member(0, 1, 2));
    job.pass(kSecond * 6);
    CHECK_THAT(job.told, Contains("b (node rank 1) lost"));
    job.says(a, Stopped{});
    THEN("its lease is waited for, from the election on") {
      job.pass(kSecond * 5);
      CHECK(job.phase() == MembershipPhase::stopping);
      job.pass(kSlack);
      CHECK(job.phase() != MembershipPhase::stopping);
      job.pass(kSecond * 3);
      CHECK(job.last<Assigned>(a).nodes == 1);
    }
  }
  WHEN("one had a place and no Start yet") {
    const auto a = job.comes(member(0, 1, 2));
    const auto b = job.comes(member(1, 1, 2, NodeState::assigned));
    job.says(a, Stopped{});
    job.pass(kSecond);
    THEN("the round is formed anew at once, and costs no restart") {
      CHECK(job.count<Start>(b) == 0);
      CHECK(job.round() == 5);
      CHECK(job.last<Assigned>(a).ledger.restarts == 2);
    }
  }
  WHEN("all were assigned to a later round, which never started") {
    for (const std::uint32_t i : {0U, 1U}) {
      Join join = member(i, 1, 2, NodeState::assigned);
      join.epoch.round = Round{5};
      job.comes(join);
    }
    job.pass(kSecond * 2);
    THEN("nobody's lease is waited for, and no number is used twice") {
      CHECK(job.phase() == MembershipPhase::assigning);
      CHECK(job.round() == 6);
    }
  }
}

SCENARIO("a table that a crashed job left behind is no part of the next one",
         "[rendezvous][membership]") {
  Successor job{2, 2};
  Join again = join_of("a", 2, 2);
  again.node.incarnation = 2;
  const auto a = job.comes(again);
  const auto b = job.comes(join_of("other", 2, 2));
  CHECK_THAT(job.last<Notice>(a).text, Contains("none of its nodes has come yet"));
  job.pass(kSecond * 11);
  CHECK(job.count<Assigned>(b) == 0);
  job.pass(kSlack);
  THEN("once its leases are over, the job starts with its whole restart budget") {
    REQUIRE(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(a).ledger == RestartLedger{});
    CHECK(job.last<Assigned>(b).reason.empty());
    CHECK(job.round() == 5);
    CHECK_THAT(job.told, Contains("nobody is left of the earlier run"));
    CHECK_THAT(job.told, !Contains("lost"));
  }
}

TEST_CASE("a node that was told of a doubt is told that it waits once the doubt is over",
          "[rendezvous][membership]") {
  Successor job{2, 2};
  const auto x = job.comes("x");
  CHECK(job.count<Notice>(x) == 1);
  CHECK(job.count<Assigned>(x) == 0);
  job.comes(member(0, 2, 2));
  job.comes(member(1, 2, 2));
  job.pass(kSecond);
  REQUIRE(job.count<Assigned>(x) == 1);
  CHECK(job.last<Assigned>(x).spare);
}

SCENARIO("Ctrl-C while a crashed job's leases run out ends the wait", "[rendezvous][membership]") {
  Successor job{2, 2};
  const auto a = job.comes(join_of("x", 2, 2));
  job.says(a, SignalRequest{2});
  REQUIRE(job.over);
  CHECK(job.over->exit_code == 130);
}

SCENARIO("workers of a round that etcd has forgotten are outlived before another one starts",
         "[rendezvous][membership]") {
  Desk desk{by_etcd(1, 2, 2)};
  desk.leads_until(Instant::max());
  const auto a = desk.comes(member(0, 1, 2));
  CHECK(desk.count<Stop>(a) == 1);
  desk.says(a, Stopped{});
  desk.pass(kSecond * 15);
  CHECK(desk.count<Assigned>(a) == 0);
  desk.pass(kSecond * 3);
  CHECK(desk.phase() == MembershipPhase::assigning);
  CHECK(desk.round() == 5);
}

SCENARIO("a coordinator whose time is over while it waits for a restart doesn't turn in a circle",
         "[rendezvous][membership]") {
  auto options = by_etcd(2, 2);
  options.policy->restart.max_restarts = 2;
  options.policy->restart.delay_base = kSecond;
  Desk desk{options};
  desk.leads_until(Instant::max());
  const auto a = desk.comes("a");
  desk.comes("b");
  for (int round = 0; round < 2; ++round) {
    desk.all_ready();
    desk.has_written(desk.commits.back().epoch);
    desk.says(a, WorkerFailed{exited(1)});
    desk.all_stopped();
  }
  REQUIRE(desk.phase() == MembershipPhase::backing_off);
  desk.leads_until(desk.now);
  desk.pass(kSecond * 60);
  CHECK(desk.phase() == MembershipPhase::backing_off);
  CHECK(desk.next_deadline() > desk.now);
}
