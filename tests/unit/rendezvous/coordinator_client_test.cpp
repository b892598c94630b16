#include <csignal>

#include "coordinator_client_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

SCENARIO("an agent joins and its workers start", "[rendezvous][member]") {
  ClientDesk desk;
  desk.begins();
  CHECK(desk.only<DialTo>().to == seed_endpoint());
  CHECK(desk.sent<Join>().empty());
  desk.link_up();
  CHECK(desk.client.phase() == LinkPhase::joining);
  const auto join = desk.last_sent<Join>();
  CHECK(join.node == NodeId{"c", 1});
  CHECK(join.address == "here");  // as the socket says, if the user gave none
  CHECK(join.state == NodeState::nothing);
  CHECK(join.epoch == Epoch{});
  CHECK(join.vote == Term{});
  desk.welcome();
  CHECK(desk.client.is_connected());
  CHECK(desk.last_sent<Heartbeat>().echo ==
        77);  // the coordinator reads at once that its word arrives
  desk.is_assigned();
  const auto ready = desk.last_sent<Ready>();
  CHECK(ready.echo == 78);
  CHECK(ready.master_port == 0);
  CHECK(desk.all<OrderRound>().empty());
  desk.starts();
  const auto place = desk.only<OrderRound>().place;
  CHECK(place.node_rank == NodeRank{2});
  CHECK(place.first_rank == Rank{4});
  CHECK(place.world_size == WorldSize{10});
  CHECK(place.master == HostPort{"a", 40'000});
  CHECK(desk.only<SetLease>().end == desk.now + kSecond * 10);
}

TEST_CASE("node rank 0 reserves the workers' port before it is ready", "[rendezvous][member]") {
  ClientDesk desk;
  desk.joins();
  Assigned first;
  first.node_rank = NodeRank{0};
  first.nodes = 2;
  desk.hears(first);
  CHECK(desk.all<OrderPort>().size() == 1);
  CHECK(desk.sent<Ready>().empty());
  desk.take(desk.client.port_reserved(41'000, desk.now));
  CHECK(desk.last_sent<Ready>().master_port == 41'000);
}

SCENARIO("a lease counts from the moment at which the heartbeat was sent", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  const Instant started = desk.now;
  desk.pass(kSecond);
  const auto heartbeat = desk.last_sent<Heartbeat>();
  const Instant sent = desk.now;
  WHEN("the answer takes three seconds") {
    desk.pass(kSecond * 3);
    desk.acks(heartbeat.heartbeat);
    THEN("they are part of the lease") {
      CHECK(*desk.client.lease_end() == sent + kSecond * 10);
      CHECK(desk.all<SetLease>().back().end == sent + kSecond * 10);
    }
    AND_WHEN("the same or an older answer comes after it") {
      desk.forget();
      desk.acks(heartbeat.heartbeat);
      desk.acks(heartbeat.heartbeat - 1);
      THEN("the lease stays as it is") {
        CHECK(desk.all<SetLease>().empty());
        CHECK(*desk.client.lease_end() == sent + kSecond * 10);
      }
    }
  }
  WHEN("less than a whole lease is granted") {
    desk.acks(heartbeat.heartbeat, kSecond * 4);
    THEN("nothing is taken away from the one that is held") {
      CHECK(*desk.client.lease_end() == started + kSecond * 10);
    }
  }
  WHEN("the answer is for a heartbeat that was never sent, or grants nothing") {
    desk.acks(heartbeat.heartbeat + 1);
    desk.acks(heartbeat.heartbeat + 64);  // same election_window of the memory
    desk.acks(heartbeat.heartbeat - 64);
    desk.acks(heartbeat.heartbeat, Millis{0});
    THEN("it doesn't count") { CHECK(*desk.client.lease_end() == started + kSecond * 10); }
  }
  WHEN("the answer is of another coordinator or an older round") {
    desk.hears({{2, 1}, Round{0}}, HeartbeatAck{heartbeat.heartbeat, 99, kSecond * 10, 0});
    desk.hears({{0, 0}, Round{0}}, HeartbeatAck{heartbeat.heartbeat, 99, kSecond * 10, 0});
    THEN("it doesn't count") { CHECK(*desk.client.lease_end() == started + kSecond * 10); }
  }
}

SCENARIO("the lease runs out", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  const Instant started = desk.now;
  desk.pass(kSecond);
  for (int second = 0; second < 8; ++second) {  // in touch, but nothing is granted
    desk.pass(kSecond);
    desk.hears(Notice{"still here"});
  }
  CHECK(desk.client.may_run(desk.now));
  CHECK(desk.all<OrderKill>().empty());
  desk.pass(kSecond * 4);
  THEN("the workers are killed once") {
    CHECK_THAT(desk.only<OrderKill>().why, Contains("lease is over"));
    CHECK_FALSE(desk.client.may_run(desk.now));
    CHECK(desk.now >= started + kSecond * 10);
    CHECK(desk.all<ClearLease>().empty());  // the guardian goes on killing
  }
  THEN("an answer that comes now doesn't bring it back") {
    const auto newest = desk.last_sent<Heartbeat>();
    desk.forget();
    desk.acks(newest.heartbeat);
    CHECK_FALSE(desk.client.may_run(desk.now));
    CHECK(desk.all<SetLease>().empty());
  }
  THEN("the coordinator is told when they are gone") {
    desk.forget();
    desk.take(desk.client.workers_stopped(false, desk.now));
    CHECK(desk.sent<Stopped>().size() == 1);
    CHECK(desk.client.state() == NodeState::stopped);
    CHECK(desk.all<ClearLease>().size() == 1);
  }
}

TEST_CASE("a Start that is older than its lease gives the place back", "[rendezvous][member]") {
  ClientDesk desk;
  desk.joins();
  desk.is_assigned();
  desk.pass(kSecond * 4);
  desk.hears(Notice{"slow"});
  desk.pass(kSecond * 4);
  desk.starts(kSecond * 7);
  CHECK(desk.all<OrderRound>().empty());
  CHECK(desk.sent<Stopped>().size() == 1);
  CHECK(desk.client.state() == NodeState::stopped);
  CHECK_FALSE(desk.client.lease_end());
  CHECK(desk.all<ClearLease>().size() == 1);
}

TEST_CASE("a notice that is a warning is shown as one", "[rendezvous][member]") {
  ClientDesk desk;
  desk.joins();
  desk.welcome();
  for (const auto* text : {"waiting", "warning: its arguments differ"}) desk.hears(Notice{text});
  const auto told = desk.all<Tell>();
  REQUIRE(told.size() >= 2);
  const auto& plain = told[told.size() - 2];
  CHECK((plain.text == "waiting" && !plain.is_warning));
  CHECK((told.back().text == "its arguments differ" && told.back().is_warning));
}

TEST_CASE("a Start of a round or a coordinator that isn't ours starts nothing",
          "[rendezvous][member]") {
  ClientDesk desk;
  desk.joins();
  desk.epoch.round = Round{3};
  desk.is_assigned();
  Start start;
  start.heartbeat = desk.last_sent<Ready>().heartbeat;
  start.granted = kSecond * 10;
  for (const Epoch other : {Epoch{{1, 0}, Round{2}}, Epoch{{1, 0}, Round{4}},
                            Epoch{{2, 1}, Round{3}}, Epoch{{0, 0}, Round{3}}})
    desk.hears(other, start);
  CHECK(desk.all<OrderRound>().empty());
  desk.hears(start);
  CHECK(desk.all<OrderRound>().size() == 1);
  desk.hears(start);  // doubled by the network
  CHECK(desk.all<OrderRound>().size() == 1);
}

SCENARIO("the round is stopped", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  WHEN("there are workers") {
    desk.hears(Stop{});
    THEN("they are stopped, and confirmed once none is left") {
      CHECK(desk.all<OrderStop>().size() == 1);
      CHECK(desk.sent<Stopped>().empty());
      desk.take(desk.client.workers_stopped(true, desk.now));
      CHECK(desk.last_sent<Stopped>().progress);
      CHECK(desk.sent<Stopped>().size() == 1);
    }
  }
  WHEN("the order is carried out so late that they had ended, and the next round is assigned") {
    desk.hears(Stop{});
    desk.take(desk.client.workers_stopped(false, desk.now));
    desk.epoch.round = Round{1};
    desk.is_assigned();
    desk.forget();
    desk.take(desk.client.workers_stopped(false, desk.now));
    THEN("its place in that one isn't given back") {
      CHECK(desk.sent<Stopped>().empty());
      CHECK(desk.client.state() == NodeState::assigned);
    }
  }
  WHEN("they have completed already") {
    desk.take(desk.client.workers_completed(true, desk.now));
    REQUIRE(desk.sent<Completed>().size() == 1);
    CHECK(desk.sent<Completed>()[0].progress);
    CHECK(desk.all<ClearLease>().size() == 1);
    desk.hears(Stop{});
    THEN("that is confirmed at once") {
      CHECK(desk.all<OrderStop>().empty());
      REQUIRE(desk.sent<Stopped>().size() == 1);
      CHECK(desk.sent<Stopped>()[0].progress);
      CHECK(desk.client.state() == NodeState::stopped);
      CHECK(desk.all<StopOfCompleted>().size() == 1);
    }
  }
  WHEN("the word is of an older round or another coordinator") {
    desk.epoch.round = Round{1};
    desk.hears({{0, 0}, Round{0}}, Stop{});
    desk.hears({{2, 2}, Round{0}}, Stop{});
    THEN("nothing happens") {
      CHECK(desk.all<OrderStop>().empty());
      CHECK(desk.client.state() == NodeState::running);
    }
  }
  WHEN("a new place is given before its workers are gone") {
    desk.epoch.round = Round{1};
    desk.is_assigned();
    THEN("it isn't taken: a rank never runs twice") {
      CHECK(desk.sent<Ready>().empty());
      CHECK(desk.client.epoch().round == Round{0});
    }
  }
}

TEST_CASE("a round costs two messages up and two down, whatever the size", "[rendezvous][member]") {
  for (const std::uint32_t nodes : {2U, 5U, 200U}) {
    ClientDesk desk;
    desk.joins();
    desk.forget();
    for (std::uint64_t round = 0; round < 4; ++round) {
      desk.epoch.round = Round{round};
      desk.is_assigned(1, nodes);  // down: Assigned
      desk.starts();               // down: Start
      CHECK(desk.all<Send>().size() == 1);
      CHECK(desk.sent<Ready>().size() == 1);
      desk.hears(Stop{});
      desk.take(desk.client.workers_stopped(false, desk.now));
      CHECK(desk.all<Send>().size() == 2);
      CHECK(desk.sent<Stopped>().size() == 1);
      desk.forget();
    }
  }
}

TEST_CASE("heartbeats go out in time, with the newest stamp of the coordinator",
          "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.pass(kSecond * 20, true);
  const auto heartbeats = desk.sent<Heartbeat>();
  CHECK(heartbeats.size() == 20);
  CHECK(heartbeats.back().echo == 80 + heartbeats[heartbeats.size() - 2].heartbeat);
  CHECK(desk.all<OrderKill>().empty());
  CHECK(*desk.client.lease_end() > desk.now + kSecond * 8);
}

TEST_CASE("the coordinator's timings count, not the own ones", "[rendezvous][member]") {
  ClientDesk desk;
  desk.begins();
  desk.link_up();
  desk.hears(Welcome{"a", 1, Millis{500}, kSecond});
  desk.forget();
  desk.pass(Millis{400});
  CHECK(desk.sent<Heartbeat>().size() == 4);
  CHECK(desk.client.is_connected());
  desk.pass(Millis{150});
  CHECK_FALSE(desk.client.is_connected());
}

SCENARIO("a node waits as a spare", "[rendezvous][member]") {
  ClientDesk desk;
  desk.joins();
  Assigned spare;
  spare.spare = true;
  desk.hears(spare);
  CHECK_THAT(desk.told(), Contains("spare"));
  CHECK(desk.client.state() == NodeState::nothing);
  CHECK(desk.sent<Ready>().empty());
  WHEN("a round is stopped in which it has no part") {
    desk.hears(Stop{});
    THEN("it says that nothing runs here") { CHECK(desk.sent<Stopped>().size() == 1); }
  }
  WHEN("it gets a place") {
    desk.epoch.round = Round{1};
    desk.is_assigned();
    desk.starts();
    THEN("it runs") { CHECK(desk.client.state() == NodeState::running); }
  }
}

// A job's machines were set up anew but for one, which was paused: it heard nothing of the new
// coordinator, as that one's rounds were not as many yet.
SCENARIO("a node comes back from a later round than the job's new coordinator has begun",
         "[rendezvous][member]") {
  ClientDesk desk;
  desk.epoch.round = Round{5};
  desk.runs();
  desk.loses_link();
  desk.pass(kSecond);
  desk.link_up();
  desk.epoch.round = Round{1};
  desk.welcome();
  desk.forget();
  desk.hears(Stop{});
  CHECK(desk.all<OrderStop>().size() == 1);
  desk.take(desk.client.workers_stopped(false, desk.now));
  Assigned spare;
  spare.spare = true;
  desk.hears(spare);
  CHECK_THAT(desk.told(), Contains("waits as a spare"));
  WHEN("it gets a place in a round above all that it knows") {
    desk.epoch.round = Round{6};
    desk.is_assigned();
    desk.starts();
    CHECK(desk.client.state() == NodeState::running);
    THEN("an order from before is stale") {
      desk.forget();
      desk.hears({desk.epoch.term, Round{5}}, Stop{});
      CHECK(desk.all<OrderStop>().empty());
    }
  }
}

TEST_CASE("a successor wasn't told why the round is being stopped", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  Stop stop;
  stop.failure = Failure{};
  stop.failure->code = 7;
  stop.failure->node = "b";
  stop.failure->ago = kSecond;
  desk.hears(stop);
  const auto meets = [&](Term term) {
    desk.loses_link();
    desk.now += kSecond * 3;
    desk.link_up();
    desk.epoch.term = term;
    desk.welcome();
  };
  SECTION("the coordinator that told it knows") {
    meets(desk.epoch.term);
    CHECK(desk.sent<WorkerFailed>().empty());
  }
  SECTION("another one is told, with the time") {
    meets({2, 1});
    const auto told = desk.last_sent<WorkerFailed>().failure;
    CHECK(told.code == 7);
    CHECK(told.node == "b");
    CHECK(told.ago == kSecond * 4);
  }
  SECTION("not in the next round") {
    desk.take(desk.client.workers_stopped(false, desk.now));
    desk.epoch.round = Round{1};
    desk.is_assigned();
    meets({2, 1});
    CHECK(desk.sent<WorkerFailed>().empty());
  }
}

SCENARIO("something happens while there is no connection", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.loses_link();
  WHEN("a worker fails") {
    Failure failure;
    failure.code = 3;
    desk.take(desk.client.worker_failed(failure, desk.now));
    CHECK(desk.sent<WorkerFailed>().empty());
    desk.link_up();
    CHECK(desk.last_sent<Join>().state == NodeState::running);
    desk.welcome();
    THEN("it is told as soon as there is one, once") {
      CHECK(desk.last_sent<WorkerFailed>().failure.code == 3);
      desk.loses_link();
      desk.link_up();
      desk.welcome();
      CHECK(desk.sent<WorkerFailed>().size() == 1);
    }
  }
  WHEN("all workers complete") {
    desk.take(desk.client.workers_completed(false, desk.now));
    desk.link_up();
    THEN("the Join says so") { CHECK(desk.last_sent<Join>().state == NodeState::completed); }
  }
  WHEN("a signal comes") {
    desk.take(desk.client.signal_received(SIGTERM));
    desk.link_up();
    desk.welcome();
    THEN("it reaches the job later") {
      CHECK(desk.last_sent<SignalRequest>().signo == SIGTERM);
      CHECK(desk.sent<SignalRequest>().size() == 1);
    }
  }
  WHEN("signals come: of a pre-emption, and twice the one that follows") {
    for (const int signo : {SIGUSR1, SIGTERM, SIGTERM})
      desk.take(desk.client.signal_received(signo));
    desk.link_up();
    desk.welcome();
    THEN("the job hears each once, in their order") {
      const auto sent = desk.sent<SignalRequest>();
      REQUIRE(sent.size() == 2);
      CHECK(sent[0].signo == SIGUSR1);
      CHECK(sent[1].signo == SIGTERM);
    }
  }
}

SCENARIO("a restart is asked for on this node", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  WHEN("the coordinator is there") {
    desk.take(desk.client.restart_asked());
    THEN("it is asked, and decides") {
      CHECK(desk.sent<RestartRequest>().size() == 1);
      CHECK(desk.all<OrderStop>().empty());
    }
  }
  WHEN("the connection is lost") {
    desk.take(desk.client.link_lost({"reset"}, desk.now));
    desk.take(desk.client.restart_asked());
    desk.link_up();
    desk.welcome();
    THEN("nothing restarts a while later") { CHECK(desk.sent<RestartRequest>().empty()); }
  }
}

SCENARIO("a signal comes to this agent", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.take(desk.client.signal_received(SIGINT));
  THEN("the coordinator decides; nothing is done here yet") {
    CHECK(desk.last_sent<SignalRequest>().signo == SIGINT);
    CHECK(desk.all<OrderStop>().empty());
  }
  THEN("what ends nothing is passed on to the workers") {
    desk.hears(Signal{SIGUSR2});
    CHECK(desk.only<OrderSignal>().signal.signo == SIGUSR2);
    desk.take(desk.client.workers_completed(false, desk.now));
    desk.hears(Signal{SIGUSR2});
    CHECK(desk.all<OrderSignal>().size() == 1);
  }
}

SCENARIO("the job ends", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  Close close;
  close.exit_code = 75;
  desk.hears(close);
  CHECK(desk.only<OrderClose>().close.exit_code == 75);
  CHECK(desk.all<Hang>().size() == 1);
  CHECK(desk.client.phase() == LinkPhase::ended);
  desk.forget();
  desk.hears(close);
  desk.hears(Stop{});
  desk.loses_link();
  desk.pass(kSecond * 1'000);
  CHECK(desk.log.empty());
  CHECK(desk.client.next_deadline() == Instant::max());
}

TEST_CASE("an agent that leaves says so and hangs up", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.take(desk.client.leaves("asked to", desk.now));
  CHECK(desk.last_sent<Leave>().why == "asked to");
  CHECK(desk.all<Hang>().size() == 1);
  CHECK(desk.client.phase() == LinkPhase::ended);
}

SCENARIO("the coordinator falls silent", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.pass(kSecond * 5);
  CHECK(desk.client.is_connected());
  desk.pass(Millis{50});
  THEN("the connection is given up, the workers go on by their lease") {
    CHECK_FALSE(desk.client.is_connected());
    CHECK(desk.all<Hang>().size() == 1);
    CHECK_THAT(desk.told(), Contains("no traffic from it for 5 s") && Contains("go on for"));
    CHECK(desk.all<OrderKill>().empty());
    CHECK(desk.all<DialTo>().size() == 1);
  }
}

TEST_CASE("an own pause is no silence of the coordinator", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.pass(kSecond, true);
  desk.now += kSecond * 8;
  desk.take(desk.client.tick(desk.now));
  CHECK(desk.client.is_connected());
  CHECK(desk.all<OrderKill>().empty());
  SECTION("but the lease goes on") {
    desk.now += kSecond * 2;
    desk.take(desk.client.tick(desk.now));
    CHECK(desk.client.is_connected());
    CHECK(desk.all<OrderKill>().size() == 1);
  }
}

SCENARIO("a doubt about the clock must be settled by the coordinator", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.pass(kSecond * 2, true);
  const Instant before = *desk.client.lease_end();
  const auto old_beat = desk.last_sent<Heartbeat>().heartbeat;
  desk.forget();
  desk.take(desk.client.clock_doubted(desk.now));
  THEN("it asks at once, and its workers end soon") {
    CHECK(desk.sent<Heartbeat>().size() == 1);
    CHECK(*desk.client.lease_end() < before);
    CHECK(*desk.client.lease_end() - desk.now == Millis{2'500});
    CHECK(desk.only<SetLease>().end == *desk.client.lease_end());
  }
  WHEN("the answer to that comes: the wall clock was merely set") {
    desk.acks(desk.last_sent<Heartbeat>().heartbeat);
    THEN("the lease is whole again, and nobody was killed") {
      CHECK(*desk.client.lease_end() - desk.now == kSecond * 10);
      desk.pass(kSecond * 5, true);
      CHECK(desk.all<OrderKill>().empty());
    }
  }
  WHEN("an answer to a heartbeat from before comes: it lay in the socket during the pause") {
    desk.acks(old_beat);
    THEN("it proves nothing") { CHECK(*desk.client.lease_end() - desk.now == Millis{2'500}); }
  }
  WHEN("nobody answers") {
    desk.pass(Millis{2'600});
    THEN("the workers end") {
      REQUIRE(desk.all<OrderKill>().size() == 1);
      CHECK(desk.only<OrderKill>().why.find("clocks") != std::string::npos);
    }
  }
}

TEST_CASE("a member without workers takes no harm from a clock that is set",
          "[rendezvous][member]") {
  ClientDesk desk;
  desk.joins();
  desk.take(desk.client.clock_doubted(desk.now));
  CHECK(desk.all<SetLease>().empty());
  desk.is_assigned();
  desk.starts();
  CHECK(desk.client.state() == NodeState::running);
}

TEST_CASE("a probe is answered at once, with its stamp", "[rendezvous][member]") {
  ClientDesk desk;
  desk.runs();
  desk.hears(Probe{5'000});
  CHECK(desk.last_sent<Heartbeat>().echo == 5'000);
  desk.forget();
  desk.hears({{9, 0}, Round{0}}, Probe{6'000});  // of another coordinator
  CHECK(desk.sent<Heartbeat>().empty());
}
