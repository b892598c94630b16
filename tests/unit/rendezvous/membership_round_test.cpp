#include <cerrno>
#include <csignal>

#include "membership_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

SCENARIO("a round starts when all have answered", "[rendezvous][membership]") {
  Desk desk{options_for(2, 2)};
  const PeerId a = desk.comes("a");
  const PeerId b = desk.comes("b");
  desk.is_ready(b);
  CHECK(desk.count<Start>(b) == 0);
  desk.is_ready(a, 41'000);
  const auto start = desk.last<Start>(b);
  CHECK(start.master == HostPort{"address-of-a", 41'000});
  CHECK(start.heartbeat == 1);
  CHECK(start.granted == kSecond * 10);
  WHEN("a failed round follows") {
    desk.says(b, WorkerFailed{exited(1)});
    desk.all_stopped();
    desk.is_ready(a, 42'000);
    desk.is_ready(b);
    THEN("its port is a fresh one") { CHECK(desk.last<Start>(b).master.port == 42'000); }
  }
}

TEST_CASE("an address or a port that the user gave is kept", "[rendezvous][membership]") {
  struct Row {
    HostPort given, expected;
  };
  for (const auto& [given, expected] :
       {Row{{"", 0}, {"address-of-a", 40'000}}, Row{{"master", 0}, {"master", 40'000}},
        Row{{"", 29'500}, {"address-of-a", 29'500}}, Row{{"master", 29'500}, {"master", 29'500}}}) {
    auto options = options_for(2, 2);
    options.policy->master = given;
    Desk desk{options};
    const PeerId a = desk.comes("a");
    desk.comes("b");
    desk.all_ready();
    CHECK(desk.last<Start>(a).master == expected);
  }
}

SCENARIO("a worker fails on one node", "[rendezvous][membership]") {
  RunningJob job{3};
  auto failure = exited(0, 2);
  failure.kind = Failure::Kind::signaled;
  failure.code = SIGSEGV;
  failure.cause = "killed by SIGSEGV (11)";
  failure.pid = 4711;
  failure.error = "its traceback";
  failure.last_lines = "its last words";
  failure.host = GENERATE("", "machine-of-b");  // the user named the node
  job.says(job.peers[1], WorkerFailed{failure});
  THEN("all nodes are told to stop, and why") {
    for (const PeerId peer : job.peers) {
      const auto stop = job.last<Stop>(peer);
      CHECK(stop.why == Stop::Why::restart);
      CHECK(stop.reason == "rank 2 on b killed by SIGSEGV (11)");
      CHECK(stop.grace == kSecond * 15);
      CHECK(stop.lost.empty());
    }
  }
  THEN("the survivors can name the rank that was lost, without its output") {
    const auto stop = job.last<Stop>(job.peers[0]);
    REQUIRE(stop.failure);
    CHECK(stop.failure->rank == Rank{2});
    CHECK(stop.failure->pid == 4711);
    CHECK(stop.failure->node == "b");
    CHECK(stop.failure->error.empty());
    CHECK(stop.failure->last_lines.empty());
  }
  THEN("the next round waits for each of them") {
    for (const PeerId peer : job.peers) {
      CHECK(job.phase() == MembershipPhase::stopping);
      job.pass(kSecond * 5);
      job.says(peer, Stopped{});
    }
    CHECK(job.phase() == MembershipPhase::assigning);
    AND_THEN("there is one count of restarts for all") {
      for (const PeerId peer : job.peers) {
        CHECK(job.last<Assigned>(peer).ledger.restarts == 1);
        CHECK(job.last<Assigned>(peer).ledger.budget_used == 1);
        CHECK(job.last<Assigned>(peer).reason == "rank 2 on b killed by SIGSEGV (11)");
      }
    }
  }
  WHEN("others fail because of it") {
    job.says(job.peers[0], WorkerFailed{exited(1, 0)});
    job.says(job.peers[2], WorkerFailed{exited(1, 4)});
    job.all_stopped();
    THEN("it is one restart, and the first one is the cause") {
      CHECK(job.membership().ledger().budget_used == 1);
      CHECK_THAT(job.last<Assigned>(job.peers[0]).reason, Contains("rank 2 on b"));
      CHECK(job.count<Stop>(job.peers[0]) == 1);
    }
  }
  WHEN("a node says that all its workers completed meanwhile") {
    job.says(job.peers[0], Completed{});
    job.says(job.peers[1], Stopped{});
    job.says(job.peers[2], Stopped{});
    THEN("that is as good as stopped, and the round is repeated everywhere") {
      CHECK(job.phase() == MembershipPhase::assigning);
      CHECK(job.count<Assigned>(job.peers[0]) == 1);
    }
  }
  WHEN("a node never answers though it heartbeats") {
    job.says(job.peers[0], Stopped{});
    job.says(job.peers[1], Stopped{});
    job.pass(kSecond * 39);
    CHECK(job.phase() == MembershipPhase::stopping);
    job.pass(kSecond * 2);
    THEN("it is closed out after the grace and a margin, and its lease waited for") {
      CHECK(job.was_closed(job.peers[2]));
      CHECK(job.phase() == MembershipPhase::stopping);
      job.pass(kSecond * 10 + kSlack);
      CHECK(job.phase() == MembershipPhase::gathering);
    }
  }
}

SCENARIO("all workers complete", "[rendezvous][membership]") {
  RunningJob job{3};
  job.says(job.peers[0], Completed{});
  job.says(job.peers[0], Completed{});  // doubled by a reconnection
  job.says(job.peers[2], Completed{});
  CHECK_FALSE(job.over);
  WHEN("the last one does") {
    job.says(job.peers[1], Completed{});
    THEN("everybody reads success") {
      for (const PeerId peer : job.peers) {
        CHECK(job.last<Close>(peer).outcome == Outcome::succeeded);
        CHECK(job.last<Close>(peer).exit_code == 0);
        CHECK_FALSE(job.last<Close>(peer).first);
      }
    }
  }
  WHEN("a completed node goes away") {
    SECTION("its connection breaks") { job.breaks(job.peers[0]); }
    SECTION("it falls silent") { job.falls_silent(job.peers[0]); }
    job.pass(kSecond * 30);
    THEN("the round goes on, it isn't needed") {
      CHECK(job.phase() == MembershipPhase::running);
      job.says(job.peers[1], Completed{});
      CHECK(job.over->outcome == Outcome::succeeded);
    }
  }
}

SCENARIO("a node falls silent", "[rendezvous][membership]") {
  RunningJob job{3};
  job.beat_all();
  const Instant lease_end = job.now + job.last<HeartbeatAck>(job.peers[2]).granted;
  job.falls_silent(job.peers[2]);
  job.pass(kSecond * 5);
  CHECK(job.phase() == MembershipPhase::running);
  job.pass(Millis{50});
  THEN("it is lost after the configured silence, in those words") {
    CHECK(job.phase() == MembershipPhase::stopping);
    CHECK_THAT(job.last<Stop>(job.peers[0]).reason,
               Contains("c (node rank 2)") && Contains("no traffic for 5 s"));
    CHECK(job.was_closed(job.peers[2]));
    CHECK_THAT(job.told, Contains("no traffic for 5 s"));
  }
  THEN("no round begins before the lease that it may still have, and a margin, are over") {
    job.all_stopped();
    job.pass(std::chrono::duration_cast<Millis>(lease_end + kSlack - job.now) - Millis{50});
    CHECK(job.phase() == MembershipPhase::stopping);
    job.pass(Millis{50});
    CHECK(job.phase() == MembershipPhase::gathering);
    AND_THEN("the restart is booked for all") { CHECK(job.membership().ledger().budget_used == 1); }
  }
}

SCENARIO("workers notice a dead node before the coordinator does", "[rendezvous][membership]") {
  RunningJob job{3};
  job.beat_all();
  job.pass(Millis{100});
  job.falls_silent(job.peers[2]);
  job.pass(kSecond);
  job.says(job.peers[0], WorkerFailed{exited(1, 0)});
  for (const int i : {0, 1}) job.says(job.peers[i], Stopped{});
  job.pass(kSecond * 16);
  THEN("the dead node is blamed, not the rank that lost its connection to it") {
    CHECK_THAT(job.last<Notice>(job.peers[0]).text, Contains("2 of 3"));
    const PeerId again = job.restarts(job.peers[2]);
    CHECK_THAT(job.last<Assigned>(again).reason, Contains("node c") && Contains("no traffic"));
  }
}

TEST_CASE("a node that is lost after a worker failed is not blamed for it",
          "[rendezvous][membership]") {
  RunningJob job{options_for(2, 3), 3};
  job.says(job.peers[0], WorkerFailed{exited(7, 0)});
  job.pass(kSecond * 2);  // node c heartbeats in that time
  job.falls_silent(job.peers[2]);
  for (const int i : {0, 1}) job.says(job.peers[i], Stopped{});
  job.pass(kSecond * 20);
  CHECK_THAT(job.last<Assigned>(job.peers[0]).reason, Contains("rank 0 on a exited with 7"));
}

SCENARIO("an agent goes by itself", "[rendezvous][membership]") {
  RunningJob job{options_for(2, 3), 3};
  job.says(job.peers[2], Leave{"node drains"});
  CHECK(job.was_closed(job.peers[2]));
  CHECK_THAT(job.last<Stop>(job.peers[0]).reason, Contains("left: node drains"));
  job.says(job.peers[0], Stopped{});
  job.says(job.peers[1], Stopped{});
  job.pass(kSecond);
  THEN("its workers are gone already: no lease is waited for") {
    CHECK(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(job.peers[0]).nodes == 2);
  }
}

TEST_CASE("why a node had left while the round was being stopped was told nowhere",
          "[rendezvous][membership]") {
  auto options = options_for(2, 2);
  options.starts_no_node_again = true;
  RunningJob job{options, 2};
  job.says(job.peers[0], RestartRequest{});
  job.says(job.peers[1], Leave{"its acc-launch was killed"});
  job.says(job.peers[0], Stopped{});
  job.pass(kSecond * 30);
  CHECK_THAT(job.last<Close>(job.peers[0]).reason, Contains("its acc-launch was killed"));
  REQUIRE(job.last<Close>(job.peers[0]).first);
  CHECK(job.last<Close>(job.peers[0]).first->cause == "lost: left: its acc-launch was killed");
}

TEST_CASE("the nodes of one launch waited ten minutes for one that had left for good",
          "[rendezvous][membership]") {
  for (const bool is_of_launch : {true, false}) {
    auto options = options_for(2, 2);
    options.starts_no_node_again = is_of_launch;
    RunningJob job{options, 2};
    job.says(job.peers[1], Leave{"unfit: no GPU"});
    job.says(job.peers[0], Stopped{});
    job.pass(kSecond * 5);
    CHECK(job.phase() == (is_of_launch ? MembershipPhase::closed : MembershipPhase::gathering));
    if (!is_of_launch) continue;
    CHECK(job.last<Close>(job.peers[0]).exit_code == 69);
    CHECK_THAT(job.last<Close>(job.peers[0]).reason, Contains("b left: unfit: no GPU"));
  }
}

SCENARIO("the nodes of one launch waited ten minutes for one whose agent had been killed",
         "[rendezvous][membership]") {
  auto options = options_for(2, 2);
  options.starts_no_node_again = true;
  RunningJob job{options, 2};
  const LinkLoss closed{"closed the connection unexpectedly", false, true};
  const auto b_is_lost = [&](const LinkLoss& loss) {
    job.loses(job.peers[1], loss);
    job.pass(kSecond);
    job.says(job.peers[0], Stopped{});
  };
  WHEN("its connection was closed") {
    b_is_lost(closed);
    job.pass(kSecond * 13);
    CHECK(job.phase() != MembershipPhase::closed);
    job.pass(kSecond * 2);
    REQUIRE(job.phase() == MembershipPhase::closed);
    CHECK(job.last<Close>(job.peers[0]).exit_code == 69);
    CHECK_THAT(job.last<Close>(job.peers[0]).reason,
               Contains("b lost: closed the connection unexpectedly; nothing starts it again"));
  }
  WHEN("the network broke it: the node may live behind that") {
    b_is_lost({"acknowledged nothing any more"});
    job.pass(kSecond * 60);
    CHECK(job.phase() == MembershipPhase::gathering);
  }
  WHEN("the agent lives and joins again") {
    b_is_lost(closed);
    job.pass(kSecond * 12);
    const auto again = job.comes("b");
    job.pass(kSecond * 4);
    CHECK(job.phase() == MembershipPhase::assigning);
    CHECK(job.last<Assigned>(again).nodes == 2);
  }
  WHEN("the coordinator slept, while it may have joined again") {
    b_is_lost(closed);
    job.pass(kSecond * 3);
    job.sleep(kSecond * 5);
    job.pass(kSecond * 13);
    CHECK(job.phase() == MembershipPhase::gathering);
    job.pass(kSecond * 3);
    CHECK(job.phase() == MembershipPhase::closed);
  }
}

// Two nodes can't elect a successor, so a spare would wait for nobody.
SCENARIO("a coordinator whose own node left is needed until a round runs without that node",
         "[rendezvous][membership]") {
  RunningJob job{options_for(2, 2), 2};
  const auto spare = job.comes("c");
  CHECK_FALSE(job.membership().is_dispensable());
  job.says(job.peers[0], Leave{"unfit"});
  job.says(job.peers[1], Stopped{});
  job.pass(kSecond);
  REQUIRE(job.phase() == MembershipPhase::assigning);
  CHECK_FALSE(job.membership().is_dispensable());
  job.says(job.peers[1], Ready{1, 0, 4000});
  job.says(spare, Ready{1, 0, 0});
  REQUIRE(job.phase() == MembershipPhase::running);
  WHEN("its order to start may be on its way still") {
    CHECK_FALSE(job.membership().is_dispensable());
  }
  WHEN("all members have answered since") {
    job.pass(kSecond * 3);
    CHECK(job.membership().is_dispensable());
  }
  WHEN("a member says nothing any more") {
    job.falls_silent(spare);
    job.pass(kSecond * 3);
    CHECK_FALSE(job.membership().is_dispensable());
  }
}

TEST_CASE("a coordinator whose own node left alone is needed by nobody",
          "[rendezvous][membership]") {
  RunningJob job{options_for(1, 2), 1};
  job.says(job.peers[0], Leave{"unfit"});
  CHECK(job.membership().is_dispensable());
}

SCENARIO("restarts are booked for the whole job", "[rendezvous][membership]") {
  const auto fails = [](RunningJob& job, const Failure& failure) {
    job.says(job.peers[1], WorkerFailed{failure});
    job.all_stopped();
  };
  SECTION("no restart is left") {
    RunningJob job{2, 1};
    fails(job, exited(3, 2));
    job.next_round_starts();
    fails(job, exited(4, 2));
    for (const PeerId peer : job.peers) {
      const auto close = job.last<Close>(peer);
      CHECK(close.outcome == Outcome::failed);
      CHECK(close.exit_code == 4);
      CHECK(close.reason == "rank 2 on b exited with 4");
      REQUIRE(close.first);
      CHECK(close.first->code == 4);
      CHECK(close.first->node == "b");
      CHECK(close.ledger.restarts == 1);
    }
  }
  SECTION("quick failures wait longer and longer, and the budget is charged once each") {
    RunningJob job{2, 5};
    fails(job, exited(1));
    job.next_round_starts();  // the first one at once
    fails(job, exited(1));
    CHECK(job.phase() == MembershipPhase::backing_off);
    job.pass(Millis{800});
    CHECK(job.phase() == MembershipPhase::backing_off);
    job.pass(Millis{400});
    job.next_round_starts();
    CHECK(job.membership().ledger().restarts == 2);
    CHECK(job.membership().ledger().budget_used == 2);
    CHECK(job.round() == 2);
  }
  SECTION("an exit code that is never retried") {
    auto options = options_for(2, 2);
    options.policy->restart.never_retry = {{3, 5}};
    RunningJob job{options, 2};
    fails(job, exited(4));
    CHECK(job.over->outcome == Outcome::never_retry);
    CHECK(job.over->exit_code == 4);
  }
  SECTION("a worker that knows itself that a restart won't help") {
    RunningJob job{2};
    auto failure = exited(1);
    failure.is_final = true;
    fails(job, failure);
    CHECK(job.over->outcome == Outcome::never_retry);
    CHECK(job.over->exit_code == 1);
  }
  SECTION("a command that isn't there") {
    struct Row {
      int error, code;
    };
    for (const auto& [error, code] :
         {Row{ENOENT, 127}, Row{EACCES, 126}, Row{EAGAIN, 71}, Row{ENOMEM, 71}}) {
      RunningJob job{2};
      auto failure = exited(error);
      failure.kind = Failure::Kind::cannot_start;
      fails(job, failure);
      CHECK(job.over->outcome == Outcome::cannot_start);
      CHECK(job.over->exit_code == code);
    }
  }
  SECTION("a process that can't be killed ends the job at once") {
    RunningJob job{2};
    auto failure = exited(0);
    failure.kind = Failure::Kind::unkillable;
    job.says(job.peers[1], WorkerFailed{failure});
    CHECK(job.over->outcome == Outcome::unkillable);
    CHECK(job.over->exit_code == 72);
  }
  SECTION("a signal's code") {
    RunningJob job{2, 0};
    auto failure = exited(SIGKILL);
    failure.kind = Failure::Kind::signaled;
    failure.last_lines = "its last words";
    failure.ago = Millis{200};
    fails(job, failure);
    CHECK(job.over->exit_code == 137);
    CHECK(job.over->first->last_lines == "its last words");  // all nodes show what its own knows
    CHECK(job.over->first->ago >= Millis{200});
    CHECK(job.over->first->round == Round{0});
  }
  SECTION("of a node whose ranks had finished too early nothing was told") {
    RunningJob job{3, 0};
    job.says(job.peers[2], Completed{});
    job.says(job.peers[0], WorkerFailed{exited(1)});
    job.says(job.peers[2], Stopped{});  // its answer to the order
    job.all_stopped();
    REQUIRE(job.over);
    CHECK(job.over->first->rank == Rank{0});
    CHECK((job.over->finished == std::vector<NodeRanks>{{"c", Rank{4}, 2}}));
  }
  SECTION("a lost node, and no restart left") {
    RunningJob job{2, 0};
    job.breaks(job.peers[1]);
    job.pass(Millis{300});
    job.all_stopped();
    job.pass(kSecond * 12);
    REQUIRE(job.over);
    CHECK(job.over->outcome == Outcome::failed);
    CHECK(job.over->exit_code == 69);
    CHECK(job.over->first->kind == Failure::Kind::node_lost);
    CHECK(job.over->first->ago >= kSecond * 5);  // since it was lost, not since the lease was over
    CHECK_THAT(job.over->reason, Contains("node b"));
  }
  SECTION("rounds without progress, whichever node it was on") {
    auto options = options_for(2, 2, 20);
    options.policy->restart.max_no_progress = 2;
    options.policy->restart.delay_base = Millis{0};
    SECTION("none") {
      RunningJob job{options, 2};
      fails(job, exited(1));
      job.next_round_starts();
      fails(job, exited(1));
      CHECK(job.over->outcome == Outcome::no_progress);
      CHECK(job.over->exit_code == 93);
    }
    SECTION("some on another node than the failure's") {
      options.policy->restart.has_progress_file = true;
      RunningJob job{options, 2};
      for (int i = 0; i < 4; ++i) {
        job.says(job.peers[1], WorkerFailed{exited(1)});
        job.says(job.peers[1], Stopped{false});
        job.says(job.peers[0], Stopped{true});
        job.pass(kSecond);
        job.next_round_starts();
      }
      CHECK(job.membership().ledger().without_progress == 0);
    }
    SECTION("some on a node whose workers had completed") {
      options.policy->restart.has_progress_file = true;
      RunningJob job{options, 2};
      for (int i = 0; i < 4; ++i) {
        job.says(job.peers[0], Completed{true});
        fails(job, exited(1));
        job.pass(kSecond);
        job.next_round_starts();
      }
      CHECK(job.membership().ledger().without_progress == 0);
    }
  }
}

// Over a slow network the replay took longer, and began from the start on the next link.
TEST_CASE("a node gave its link up while it replayed many writes, for want of an answer",
          "[rendezvous][membership]") {
  RunningJob job{3};
  const PeerId peer = job.peers[1];
  const Millis quarter = MembershipOptions{}.timings.heartbeat_timeout / 4;
  for (const std::size_t answers : {1U, 2U, 3U}) {
    job.says(peer, KvRestore{"k", "value", 0});
    job.says(peer, KvRestore{"l", "value", 0});
    CHECK(job.count<Probe>(peer) == answers);
    job.pass(quarter);
  }
  CHECK(job.count<Probe>(job.peers[0]) == 0);
}

SCENARIO("a signal comes to one agent", "[rendezvous][membership]") {
  auto options = options_for(3, 3);
  options.policy->preempt_signals = {SIGUSR1};
  RunningJob job{options, 3};
  WHEN("it is SIGTERM") {
    job.says(job.peers[2], SignalRequest{SIGTERM});
    THEN("all nodes stop with that signal and read who asked") {
      for (const PeerId peer : job.peers) {
        const auto stop = job.last<Stop>(peer);
        CHECK(stop.why == Stop::Why::end);
        CHECK(stop.signo == SIGTERM);
        CHECK(stop.grace == kSecond * 15);
        CHECK(stop.by == "c");
        CHECK_THAT(stop.reason, Contains("SIGTERM") && Contains("on c"));
      }
    }
    THEN("the job ends when all are gone, by no restart") {
      job.says(job.peers[0], Stopped{});
      job.says(job.peers[1], WorkerFailed{exited(1)});  // of the signal
      job.says(job.peers[1], Stopped{});
      CHECK_FALSE(job.over);
      job.says(job.peers[2], Stopped{});
      CHECK(job.over->outcome == Outcome::stopped);
      CHECK(job.over->exit_code == 143);
      CHECK_FALSE(job.over->first);
    }
    AND_WHEN("it comes once more, from another node") {
      job.says(job.peers[0], SignalRequest{SIGTERM});
      THEN("that is passed on too") {
        CHECK(job.count<Stop>(job.peers[1]) == 2);
        CHECK(job.last<Stop>(job.peers[1]).by == "c");  // the first one tells who asked
        CHECK(job.last<Stop>(job.peers[1]).reason == "SIGTERM to the agent on c");
      }
    }
  }
  WHEN("it is a signal of --preempt_signals") {
    job.says(job.peers[1], SignalRequest{SIGUSR1});
    THEN("the workers get the longer grace, and the job the code to requeue") {
      CHECK(job.last<Stop>(job.peers[0]).signo == SIGUSR1);
      CHECK(job.last<Stop>(job.peers[0]).grace == kSecond * 30);
      job.all_stopped();
      CHECK(job.over->outcome == Outcome::preempted);
      CHECK(job.over->exit_code == 75);
    }
    // The order to a member that was connected anew cut its grace.
    THEN("a node whose connection breaks meanwhile keeps that grace") {
      job.breaks(job.peers[0]);
      const PeerId again = job.returns(job.peers[0]);
      CHECK(job.last<Stop>(again).signo == SIGUSR1);
      CHECK(job.last<Stop>(again).grace == kSecond * 30);
    }
  }
  WHEN("it ends nothing") {
    job.says(job.peers[1], SignalRequest{SIGUSR2});
    THEN("all nodes pass it on, and the round goes on") {
      for (const PeerId peer : job.peers) CHECK(job.last<Signal>(peer).signo == SIGUSR2);
      CHECK(job.phase() == MembershipPhase::running);
    }
  }
  WHEN("it comes while a failed round stops") {
    job.says(job.peers[1], WorkerFailed{exited(1)});
    job.says(job.peers[0], SignalRequest{SIGINT});
    job.all_stopped();
    THEN("no round follows") { CHECK(job.over->exit_code == 130); }
  }
  WHEN("it comes between two rounds") {
    for (int i = 0; i < 2; ++i) {
      job.says(job.peers[1], WorkerFailed{exited(1)});
      job.all_stopped();
      if (i == 0) job.next_round_starts();
    }
    REQUIRE(job.phase() == MembershipPhase::backing_off);
    job.says(job.peers[2], SignalRequest{SIGTERM});
    THEN("the job ends at once") { CHECK(job.over->outcome == Outcome::stopped); }
  }
}

SCENARIO("a restart is asked for on one node", "[rendezvous][membership]") {
  RunningJob job{3};
  const auto ledger = job.membership().ledger();
  WHEN("the round runs") {
    job.says(job.peers[1], RestartRequest{});
    THEN("all workers are stopped, and it is said why") {
      for (const PeerId peer : job.peers) {
        CHECK(job.last<Stop>(peer).why == Stop::Why::membership);
        CHECK(job.last<Stop>(peer).reason == "restart asked for on b");
        CHECK(job.last<Stop>(peer).signo == 0);
      }
      AND_WHEN("they are gone") {
        job.all_stopped();
        THEN("a round follows at once, and no restart is used up") {
          CHECK(job.phase() == MembershipPhase::assigning);
          CHECK(job.membership().ledger().budget_used == ledger.budget_used);
          CHECK(job.last<Assigned>(job.peers[0]).reason == "restart asked for on b");
        }
        THEN("it counts as a restart, for the workers and the report") {
          CHECK(job.membership().ledger().restarts == ledger.restarts + 1);
          CHECK(job.last<Assigned>(job.peers[2]).ledger == job.membership().ledger());
        }
      }
      AND_WHEN("it is asked for again meanwhile") {
        job.says(job.peers[0], RestartRequest{});
        THEN("once is enough") { CHECK(job.count<Stop>(job.peers[1]) == 1); }
      }
      AND_WHEN("the job is stopped meanwhile") {
        job.says(job.peers[0], SignalRequest{SIGTERM});
        job.all_stopped();
        THEN("no round follows") { CHECK(job.over->outcome == Outcome::stopped); }
      }
    }
  }
  WHEN("a failed round stops") {
    job.says(job.peers[1], WorkerFailed{exited(1)});
    job.says(job.peers[0], RestartRequest{});
    CHECK(job.last<RestartReply>(job.peers[0]).why_not.empty());
    job.all_stopped();
    THEN("a round follows at once, and no restart is used up") {
      CHECK(job.phase() == MembershipPhase::assigning);
      CHECK(job.membership().ledger().budget_used == ledger.budget_used);
      CHECK(job.membership().ledger().restarts == ledger.restarts + 1);
      CHECK(job.last<Assigned>(job.peers[1]).reason == "restart asked for on a");
      AND_WHEN("that round fails, too") {
        job.next_round_starts();
        job.says(job.peers[1], WorkerFailed{exited(1)});
        job.all_stopped();
        THEN("its restart counts") {
          CHECK(job.membership().ledger().restarts == ledger.restarts + 2);
        }
      }
    }
  }
  WHEN("the workers can't be started") {
    Failure failure = exited(127);
    failure.kind = Failure::Kind::cannot_start;
    job.says(job.peers[1], WorkerFailed{failure});
    job.says(job.peers[0], RestartRequest{});
    THEN("it is refused") {
      CHECK(job.last<RestartReply>(job.peers[0]).why_not == "its workers can't be started");
    }
  }
  WHEN("the job is being stopped") {
    job.says(job.peers[0], SignalRequest{SIGTERM});
    job.says(job.peers[1], RestartRequest{});
    THEN("it is refused") {
      CHECK(job.last<RestartReply>(job.peers[1]).why_not == "the job is being stopped");
      job.all_stopped();
      CHECK(job.over->outcome == Outcome::stopped);
    }
  }
  WHEN("the next round is waited for") {
    for (int i = 0; i < 2; ++i) {
      job.says(job.peers[1], WorkerFailed{exited(1)});
      job.all_stopped();
      if (i == 0) job.next_round_starts();
    }
    REQUIRE(job.phase() == MembershipPhase::backing_off);
    job.says(job.peers[2], RestartRequest{});
    THEN("it comes now") { CHECK(job.phase() == MembershipPhase::assigning); }
  }
}

SCENARIO("a restart asked for while a round forms isn't answered ok and dropped",
         "[rendezvous][membership]") {
  Desk desk{options_for(3, 3)};
  const PeerId a = desk.comes("a");
  WHEN("nodes are still missing") {
    desk.says(a, RestartRequest{});
    THEN("it is refused, and says what the job waits for") {
      CHECK_THAT(desk.last<RestartReply>(a).why_not, Contains("waits for its nodes"));
    }
  }
  WHEN("the workers are being started") {
    desk.comes("b");
    desk.comes("c");
    REQUIRE(desk.membership().phase() == MembershipPhase::assigning);
    desk.says(a, RestartRequest{});
    THEN("it is refused, as on one node") {
      CHECK(desk.last<RestartReply>(a).why_not == "its workers are just being started");
    }
  }
}

TEST_CASE("a signal while nodes are still missing ends the job for those who came",
          "[rendezvous][membership]") {
  Desk desk{options_for(3, 3)};
  const PeerId a = desk.comes("a");
  const PeerId b = desk.comes("b");
  desk.says(b, SignalRequest{SIGINT});
  CHECK(desk.last<Close>(a).exit_code == 130);
  CHECK_THAT(desk.last<Close>(a).reason, Contains("SIGINT") && Contains("on b"));
}

TEST_CASE("whoever asks gets the whole table", "[rendezvous][membership]") {
  RunningJob job{3};
  job.says(job.peers[1], TableRequest{});
  const auto table = job.last<Table>(job.peers[1]);
  CHECK(table.nodes == 3);
  CHECK(table.first == 0);
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[2] == TableRow{"c", "c", "address-of-c", Rank{4}, 2});
}

TEST_CASE("a node and a round cost the coordinator a constant number of messages",
          "[rendezvous][membership]") {
  for (const std::uint32_t nodes : {2U, 8U, 64U}) {
    Desk desk{options_for(nodes, nodes)};
    std::vector<PeerId> peers;
    for (std::uint32_t i = 0; i < nodes; ++i) peers.push_back(desk.comes("n" + std::to_string(i)));
    desk.all_ready();
    REQUIRE(desk.phase() == MembershipPhase::running);
    for (const PeerId peer : peers) CHECK(desk.messages(peer) == 3);  // Welcome, Assigned, Start
    desk.forget_messages();
    desk.says(peers[0], WorkerFailed{exited(1)});
    desk.all_stopped();
    desk.all_ready();
    REQUIRE(desk.phase() == MembershipPhase::running);
    for (const PeerId peer : peers) CHECK(desk.messages(peer) == 3);  // Stop, Assigned, Start
  }
}
