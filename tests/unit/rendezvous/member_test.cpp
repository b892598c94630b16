#include <csignal>

#include "member_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

SCENARIO("an agent joins and its workers start", "[rendezvous][member]") {
  Seat seat;
  seat.begins();
  CHECK(seat.only<DialTo>().to == home());
  CHECK(seat.sent<Join>().empty());
  seat.link_up();
  CHECK(seat.member.phase() == LinkPhase::joining);
  const auto join = seat.last_sent<Join>();
  CHECK(join.node == NodeId{"c", 1});
  CHECK(join.address == "here");  // as the socket says, if the user gave none
  CHECK(join.holding == Holding::nothing);
  CHECK(join.epoch == Epoch{});
  CHECK(join.vote == Term{});
  seat.welcome();
  CHECK(seat.member.is_connected());
  CHECK(seat.last_sent<Beat>().echo == 77);  // the coordinator reads at once that its word arrives
  seat.is_assigned();
  const auto ready = seat.last_sent<Ready>();
  CHECK(ready.echo == 78);
  CHECK(ready.master_port == 0);
  CHECK(seat.all<OrderRound>().empty());
  seat.starts();
  const auto place = seat.only<OrderRound>().place;
  CHECK(place.node_rank == NodeRank{2});
  CHECK(place.first_rank == Rank{4});
  CHECK(place.world_size == WorldSize{10});
  CHECK(place.master == HostPort{"a", 40'000});
  CHECK(seat.only<SetLease>().end == seat.now + kSecond * 10);
}

TEST_CASE("node rank 0 reserves the workers' port before it is ready", "[rendezvous][member]") {
  Seat seat;
  seat.joins();
  Assigned first;
  first.node_rank = NodeRank{0};
  first.nodes = 2;
  seat.hears(first);
  CHECK(seat.all<OrderPort>().size() == 1);
  CHECK(seat.sent<Ready>().empty());
  seat.take(seat.member.port_reserved(41'000, seat.now));
  CHECK(seat.last_sent<Ready>().master_port == 41'000);
}

SCENARIO("a lease counts from the moment at which the beat was sent", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  const Instant started = seat.now;
  seat.pass(kSecond);
  const auto beat = seat.last_sent<Beat>();
  const Instant sent = seat.now;
  WHEN("the answer takes three seconds") {
    seat.pass(kSecond * 3);
    seat.acks(beat.beat);
    THEN("they are part of the lease") {
      CHECK(*seat.member.lease_end() == sent + kSecond * 10);
      CHECK(seat.all<SetLease>().back().end == sent + kSecond * 10);
    }
    AND_WHEN("the same or an older answer comes after it") {
      seat.forget();
      seat.acks(beat.beat);
      seat.acks(beat.beat - 1);
      THEN("the lease stays as it is") {
        CHECK(seat.all<SetLease>().empty());
        CHECK(*seat.member.lease_end() == sent + kSecond * 10);
      }
    }
  }
  WHEN("less than a whole lease is granted") {
    seat.acks(beat.beat, kSecond * 4);
    THEN("nothing is taken away from the one that is held") {
      CHECK(*seat.member.lease_end() == started + kSecond * 10);
    }
  }
  WHEN("the answer is for a beat that was never sent, or grants nothing") {
    seat.acks(beat.beat + 1);
    seat.acks(beat.beat + 64);  // same slot of the memory
    seat.acks(beat.beat - 64);
    seat.acks(beat.beat, Millis{0});
    THEN("it doesn't count") { CHECK(*seat.member.lease_end() == started + kSecond * 10); }
  }
  WHEN("the answer is of another coordinator or an older round") {
    seat.hears({{2, 1}, Round{0}}, BeatAck{beat.beat, 99, kSecond * 10, 0, 0});
    seat.hears({{0, 0}, Round{0}}, BeatAck{beat.beat, 99, kSecond * 10, 0, 0});
    THEN("it doesn't count") { CHECK(*seat.member.lease_end() == started + kSecond * 10); }
  }
}

SCENARIO("the lease runs out", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  const Instant started = seat.now;
  seat.pass(kSecond);
  for (int second = 0; second < 8; ++second) {  // in touch, but nothing is granted
    seat.pass(kSecond);
    seat.hears(Notice{"still here"});
  }
  CHECK(seat.member.may_run(seat.now));
  CHECK(seat.all<OrderKill>().empty());
  seat.pass(kSecond * 4);
  THEN("the workers are killed once") {
    CHECK_THAT(seat.only<OrderKill>().why, Contains("lease is over"));
    CHECK_FALSE(seat.member.may_run(seat.now));
    CHECK(seat.now >= started + kSecond * 10);
    CHECK(seat.all<ClearLease>().empty());  // the guardian goes on killing
  }
  THEN("an answer that comes now doesn't bring it back") {
    const auto newest = seat.last_sent<Beat>();
    seat.forget();
    seat.acks(newest.beat);
    CHECK_FALSE(seat.member.may_run(seat.now));
    CHECK(seat.all<SetLease>().empty());
  }
  THEN("the coordinator is told when they are gone") {
    seat.forget();
    seat.take(seat.member.workers_stopped(false, seat.now));
    CHECK(seat.sent<Stopped>().size() == 1);
    CHECK(seat.member.holding() == Holding::stopped);
    CHECK(seat.all<ClearLease>().size() == 1);
  }
}

TEST_CASE("a Start that is older than its lease gives the place back", "[rendezvous][member]") {
  Seat seat;
  seat.joins();
  seat.is_assigned();
  seat.pass(kSecond * 4);
  seat.hears(Notice{"slow"});
  seat.pass(kSecond * 4);
  seat.starts(kSecond * 7);
  CHECK(seat.all<OrderRound>().empty());
  CHECK(seat.sent<Stopped>().size() == 1);
  CHECK(seat.member.holding() == Holding::stopped);
  CHECK_FALSE(seat.member.lease_end());
  CHECK(seat.all<ClearLease>().size() == 1);
}

TEST_CASE("a Start of a round or a coordinator that isn't ours starts nothing",
          "[rendezvous][member]") {
  Seat seat;
  seat.joins();
  seat.epoch.round = Round{3};
  seat.is_assigned();
  Start start;
  start.beat = seat.last_sent<Ready>().beat;
  start.granted = kSecond * 10;
  for (const Epoch other : {Epoch{{1, 0}, Round{2}}, Epoch{{1, 0}, Round{4}},
                            Epoch{{2, 1}, Round{3}}, Epoch{{0, 0}, Round{3}}})
    seat.hears(other, start);
  CHECK(seat.all<OrderRound>().empty());
  seat.hears(start);
  CHECK(seat.all<OrderRound>().size() == 1);
  seat.hears(start);  // doubled by the network
  CHECK(seat.all<OrderRound>().size() == 1);
}

SCENARIO("the round is stopped", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  WHEN("there are workers") {
    seat.hears(Stop{});
    THEN("they are stopped, and confirmed once none is left") {
      CHECK(seat.all<OrderStop>().size() == 1);
      CHECK(seat.sent<Stopped>().empty());
      seat.take(seat.member.workers_stopped(true, seat.now));
      CHECK(seat.last_sent<Stopped>().progress);
      CHECK(seat.sent<Stopped>().size() == 1);
    }
  }
  WHEN("they have completed already") {
    seat.take(seat.member.workers_completed(seat.now));
    CHECK(seat.sent<Completed>().size() == 1);
    CHECK(seat.all<ClearLease>().size() == 1);
    seat.hears(Stop{});
    THEN("that is confirmed at once") {
      CHECK(seat.all<OrderStop>().empty());
      CHECK(seat.sent<Stopped>().size() == 1);
      CHECK(seat.member.holding() == Holding::stopped);
    }
  }
  WHEN("the word is of an older round or another coordinator") {
    seat.epoch.round = Round{1};
    seat.hears({{0, 0}, Round{0}}, Stop{});
    seat.hears({{2, 2}, Round{0}}, Stop{});
    THEN("nothing happens") {
      CHECK(seat.all<OrderStop>().empty());
      CHECK(seat.member.holding() == Holding::running);
    }
  }
  WHEN("a new place is given before its workers are gone") {
    seat.epoch.round = Round{1};
    seat.is_assigned();
    THEN("it isn't taken: a rank never runs twice") {
      CHECK(seat.sent<Ready>().empty());
      CHECK(seat.member.epoch().round == Round{0});
    }
  }
}

TEST_CASE("a round costs two messages up and two down, whatever the size", "[rendezvous][member]") {
  for (const std::uint32_t nodes : {2U, 5U, 200U}) {
    Seat seat;
    seat.joins();
    seat.forget();
    for (std::uint64_t round = 0; round < 4; ++round) {
      seat.epoch.round = Round{round};
      seat.is_assigned(1, nodes);  // down: Assigned
      seat.starts();               // down: Start
      CHECK(seat.all<Send>().size() == 1);
      CHECK(seat.sent<Ready>().size() == 1);
      seat.hears(Stop{});
      seat.take(seat.member.workers_stopped(false, seat.now));
      CHECK(seat.all<Send>().size() == 2);
      CHECK(seat.sent<Stopped>().size() == 1);
      seat.forget();
    }
  }
}

TEST_CASE("beats go out in time, with what the node holds and the newest stamp",
          "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.member.set_alive(2);
  seat.pass(kSecond * 20, true);
  const auto beats = seat.sent<Beat>();
  CHECK(beats.size() == 20);
  CHECK(beats.back().holding == Holding::running);
  CHECK(beats.back().alive == 2);
  CHECK(beats.back().echo == 80 + beats[beats.size() - 2].beat);
  CHECK(seat.all<OrderKill>().empty());
  CHECK(*seat.member.lease_end() > seat.now + kSecond * 8);
}

TEST_CASE("the coordinator's timings count, not the own ones", "[rendezvous][member]") {
  Seat seat;
  seat.begins();
  seat.link_up();
  seat.hears(Welcome{"a", 1, Millis{100}, Millis{500}, kSecond});
  seat.forget();
  seat.pass(Millis{400});
  CHECK(seat.sent<Beat>().size() == 4);
  CHECK(seat.member.is_connected());
  seat.pass(Millis{150});
  CHECK_FALSE(seat.member.is_connected());
}

SCENARIO("a node waits as a spare", "[rendezvous][member]") {
  Seat seat;
  seat.joins();
  Assigned spare;
  spare.spare = true;
  seat.hears(spare);
  CHECK_THAT(seat.told(), Contains("spare"));
  CHECK(seat.member.holding() == Holding::nothing);
  CHECK(seat.sent<Ready>().empty());
  WHEN("a round is stopped in which it has no part") {
    seat.hears(Stop{});
    THEN("it says that nothing runs here") { CHECK(seat.sent<Stopped>().size() == 1); }
  }
  WHEN("it gets a place") {
    seat.epoch.round = Round{1};
    seat.is_assigned();
    seat.starts();
    THEN("it runs") { CHECK(seat.member.holding() == Holding::running); }
  }
}

SCENARIO("something happens while there is no connection", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.loses_link();
  WHEN("a worker fails") {
    Failure failure;
    failure.code = 3;
    seat.take(seat.member.worker_failed(failure, seat.now));
    CHECK(seat.sent<WorkerFailed>().empty());
    seat.link_up();
    CHECK(seat.last_sent<Join>().holding == Holding::running);
    seat.welcome();
    THEN("it is told as soon as there is one, once") {
      CHECK(seat.last_sent<WorkerFailed>().failure.code == 3);
      seat.loses_link();
      seat.link_up();
      seat.welcome();
      CHECK(seat.sent<WorkerFailed>().size() == 1);
    }
  }
  WHEN("all workers complete") {
    seat.take(seat.member.workers_completed(seat.now));
    seat.link_up();
    THEN("the Join says so") { CHECK(seat.last_sent<Join>().holding == Holding::completed); }
  }
  WHEN("a signal comes") {
    seat.take(seat.member.signal_came(SIGTERM, 0, seat.now));
    seat.link_up();
    seat.welcome();
    THEN("it reaches the job later") {
      CHECK(seat.last_sent<Wish>().signo == SIGTERM);
      CHECK(seat.sent<Wish>().size() == 1);
    }
  }
}

SCENARIO("a signal comes to this agent", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.take(seat.member.signal_came(SIGINT, 1, seat.now));
  THEN("the coordinator decides; nothing is done here yet") {
    CHECK(seat.last_sent<Wish>().interrupts == 1);
    CHECK(seat.all<OrderStop>().empty());
  }
  THEN("what ends nothing is passed on to the workers") {
    seat.hears(Signal{SIGUSR2, "b"});
    CHECK(seat.only<OrderSignal>().signal.signo == SIGUSR2);
    seat.take(seat.member.workers_completed(seat.now));
    seat.hears(Signal{SIGUSR2, "b"});
    CHECK(seat.all<OrderSignal>().size() == 1);
  }
}

SCENARIO("the job ends", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  Close close;
  close.exit_code = 75;
  seat.hears(close);
  CHECK(seat.only<OrderClose>().close.exit_code == 75);
  CHECK(seat.all<Hang>().size() == 1);
  CHECK(seat.member.phase() == LinkPhase::ended);
  seat.forget();
  seat.hears(close);
  seat.hears(Stop{});
  seat.loses_link();
  seat.pass(kSecond * 1'000);
  CHECK(seat.log.empty());
  CHECK(seat.member.next_deadline() == Instant::max());
}

TEST_CASE("an agent that leaves says so and hangs up", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.take(seat.member.leaves("asked to", seat.now));
  CHECK(seat.last_sent<Leave>().why == "asked to");
  CHECK(seat.all<Hang>().size() == 1);
  CHECK(seat.member.phase() == LinkPhase::ended);
}

SCENARIO("the coordinator falls silent", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.pass(kSecond * 5);
  CHECK(seat.member.is_connected());
  seat.pass(Millis{50});
  THEN("the connection is given up, the workers go on by their lease") {
    CHECK_FALSE(seat.member.is_connected());
    CHECK(seat.all<Hang>().size() == 1);
    CHECK_THAT(seat.told(), Contains("no traffic from it for 5 s") && Contains("go on for"));
    CHECK(seat.all<OrderKill>().empty());
    CHECK(seat.all<DialTo>().size() == 1);
  }
}

TEST_CASE("an own pause is no silence of the coordinator", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.pass(kSecond, true);
  seat.now += kSecond * 8;
  seat.take(seat.member.tick(seat.now));
  CHECK(seat.member.is_connected());
  CHECK(seat.all<OrderKill>().empty());
  SECTION("but the lease goes on") {
    seat.now += kSecond * 2;
    seat.take(seat.member.tick(seat.now));
    CHECK(seat.member.is_connected());
    CHECK(seat.all<OrderKill>().size() == 1);
  }
}

SCENARIO("a doubt about the clock must be settled by the coordinator", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.pass(kSecond * 2, true);
  const Instant before = *seat.member.lease_end();
  const auto old_beat = seat.last_sent<Beat>().beat;
  seat.forget();
  seat.take(seat.member.clock_doubted(seat.now));
  THEN("it asks at once, and its workers end soon") {
    CHECK(seat.sent<Beat>().size() == 1);
    CHECK(*seat.member.lease_end() < before);
    CHECK(*seat.member.lease_end() - seat.now == Millis{2'500});
    CHECK(seat.only<SetLease>().end == *seat.member.lease_end());
  }
  WHEN("the answer to that comes: the wall clock was merely set") {
    seat.acks(seat.last_sent<Beat>().beat);
    THEN("the lease is whole again, and nobody was killed") {
      CHECK(*seat.member.lease_end() - seat.now == kSecond * 10);
      seat.pass(kSecond * 5, true);
      CHECK(seat.all<OrderKill>().empty());
    }
  }
  WHEN("an answer to a beat from before comes: it lay in the socket during the pause") {
    seat.acks(old_beat);
    THEN("it proves nothing") { CHECK(*seat.member.lease_end() - seat.now == Millis{2'500}); }
  }
  WHEN("nobody answers") {
    seat.pass(Millis{2'600});
    THEN("the workers end") {
      REQUIRE(seat.all<OrderKill>().size() == 1);
      CHECK(seat.only<OrderKill>().why.find("clocks") != std::string::npos);
    }
  }
}

TEST_CASE("a member without workers takes no harm from a clock that is set",
          "[rendezvous][member]") {
  Seat seat;
  seat.joins();
  seat.take(seat.member.clock_doubted(seat.now));
  CHECK(seat.all<SetLease>().empty());
  seat.is_assigned();
  seat.starts();
  CHECK(seat.member.holding() == Holding::running);
}

TEST_CASE("a probe is answered at once, with its stamp", "[rendezvous][member]") {
  Seat seat;
  seat.runs();
  seat.hears(Probe{5'000});
  CHECK(seat.last_sent<Beat>().echo == 5'000);
  seat.forget();
  seat.hears({{9, 0}, Round{0}}, Probe{6'000});  // of another coordinator
  CHECK(seat.sent<Beat>().empty());
}
