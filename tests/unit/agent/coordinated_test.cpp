#include "tests/unit/agent/coordinated.hpp"

#include "agent/lease_terms.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>

using namespace acc;
using namespace acc::agent;
using std::chrono::seconds;

SCENARIO("a coordinated job restarts when the coordinator says so", "[agent][supervisor]") {
  Story story;
  story.running();
  GIVEN("a worker of this node failed") {
    CHECK(story.exits(0, Exited{7}) == "SIGTERM, escaped, grace 15 s, report failed, tell failure");
    WHEN("the others follow, and the order to stop comes back") {
      CHECK(story.stop(0, seconds{15}).empty());
      story.exits(1, Signaled{SIGTERM});
      CHECK(story.emptied() == "report stopped");
      THEN("the next round comes with the job's ledger") {
        RestartLedger ledger;
        ledger.restarts = 3;
        CHECK(story.feed(RoundOrdered{Round{4}, ledger, story.now}) == "start 4");
        CHECK(story.group.ledger == ledger);
        CHECK_FALSE(story.group.first_failure);
        story.feed(RoundStarted{story.now});
        AND_THEN("its end is judged by itself") {
          CHECK(story.all_end(Exited{0}) == "report completed");
        }
      }
      THEN("or the job is closed with the code of the failure") {
        CHECK(story.closed(Outcome::failed, 7) == "finish failed 7");
      }
    }
  }
  GIVEN("another node failed") {
    CHECK(story.stop(0, seconds{15}) == "SIGTERM, escaped, grace 15 s");
    WHEN("the workers end, one of them with an error") {
      CHECK(story.exits(0, Exited{1}) == "left_over 150 ms");  // our SIGTERM's doing
      story.exits(1, Signaled{SIGTERM});
      THEN("no failure is reported") { CHECK(story.emptied() == "report stopped"); }
    }
  }
}

SCENARIO("all workers of this node are done while other nodes go on", "[agent][supervisor]") {
  Story story;
  story.running();
  CHECK(story.exits(0, Exited{0}).empty());
  CHECK(story.exits(1, Exited{0}) == "left_over 150 ms, grace 15 s");
  WHEN("nothing is left") {
    CHECK(story.emptied(true) == "report completed");
    THEN("the job succeeds when the coordinator closes it") {
      CHECK(story.closed(Outcome::succeeded, 0) == "finish succeeded 0");
    }
    THEN("another node's failure finds this one stopped already") {
      CHECK(story.stop(0, seconds{15}) == "report stopped with progress");
      CHECK(story.ordered(1) == "start 1");
    }
  }
  WHEN("the order to stop comes while a left-over still ends") {
    story.stop(0, seconds{15});
    THEN("the round counts as stopped") { CHECK(story.emptied() == "report stopped"); }
  }
}

SCENARIO("the lease of a node ends", "[agent][supervisor]") {
  Story story;
  story.running();
  CHECK(story.feed(LeaseOver{story.now}) == "kill, give_up 10 s");
  WHEN("the workers are dead") {
    THEN("nobody is blamed, and the node waits for the coordinator") {
      CHECK(story.all_end(Signaled{SIGKILL}) == "report stopped");
      CHECK_FALSE(story.group.first_failure);
      CHECK(story.ordered(1) == "start 1");
    }
  }
  WHEN("one survives SIGKILL") {
    CHECK(story.fires(Timer::give_up) == "report unkillable, finish unkillable 72");
  }
}

SCENARIO("the lease ended between the decision to start and the start", "[agent][supervisor]") {
  Story story;
  story.starting();
  CHECK(story.cannot_start(ETIME, kLeaseStep) == "kill, grace 10 s");
  THEN("that is no failure of a worker") {
    CHECK(story.emptied() == "report stopped");
    CHECK_FALSE(story.group.start_failure);
    CHECK(story.ordered(1) == "start 1");
  }
}

SCENARIO("a worker can't be started on one of several nodes", "[agent][supervisor]") {
  Story story;
  story.starting();
  WHEN("its program doesn't exist") {
    CHECK(story.cannot_start(ENOENT, "exec") == "kill, grace 10 s, report start failed");
    THEN("the coordinator decides what that means") {
      CHECK(story.emptied() == "report stopped");
      CHECK(story.closed(Outcome::cannot_start, 127) == "finish cannot_start 127");
    }
  }
  WHEN("processes are short") {
    story.cannot_start(EAGAIN);
    CHECK(story.emptied() == "tell retry, backoff 250 ms");
    THEN("it is tried again here, and reported after 5 s") {
      int tries = 1;
      for (std::string done; done.find("report") == std::string::npos; ++tries) {
        REQUIRE(tries < 100);
        story.now += Millis{250};
        REQUIRE(story.fires(Timer::backoff) == "start 0");
        story.cannot_start(EAGAIN);
        done = story.emptied();
        if (tries == 20) CHECK(done == "report start failed, report stopped");
      }
      CHECK(tries == 21);
      AND_THEN("a later round has its own 5 s") {
        story.ordered(1);
        story.cannot_start(EAGAIN);
        CHECK(story.emptied() == "tell retry, backoff 250 ms");
      }
    }
    THEN("an order to stop ends the tries") {
      CHECK(story.stop(0, seconds{15}) == "report stopped");
      CHECK(story.fires(Timer::backoff).empty());
    }
  }
}

SCENARIO("the user asks one node of a job to end", "[agent][supervisor]") {
  GIVEN("running workers") {
    Story story;
    story.running();
    WHEN("Ctrl-C is pressed") {
      CHECK(story.signal(SIGINT) == "ask SIGINT, SIGINT, tell stopping, grace 3 s");
      THEN("the coordinator's order for all changes nothing here") {
        CHECK(story.stop(SIGINT, seconds{15}, true).empty());
        CHECK(story.all_end(Signaled{SIGINT}) == "report stopped, close_timeout 25 s");
        CHECK(story.closed(Outcome::stopped, 130) == "finish stopped 130");
      }
      THEN("a second Ctrl-C of acc-launch --hosts that overtook the order was the first one here") {
        story.group.stop.is_from_one_launch = true;
        CHECK(story.stop_elsewhere(SIGINT, seconds{60}) ==
              "tell hurry, SIGTERM, escaped, grace 2 s");
        CHECK(story.stop_elsewhere(SIGINT, seconds{60}).empty());  // of the repetition
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell killing, kill, give_up 10 s");
      }
      THEN("one that srun sends to all nodes is the same one") {
        CHECK(story.stop_elsewhere(SIGINT, seconds{60}).empty());
      }
      THEN("without a coordinator's word the node goes by itself") {
        story.all_end(Signaled{SIGINT});
        CHECK(story.fires(Timer::close_timeout) == "finish stopped 130");
      }
      THEN("a second one hurries, a third one kills, and each is told to the job") {
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell hurry, SIGTERM, escaped, grace 2 s");
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell killing, kill, give_up 10 s");
      }
      THEN("a third one doesn't wait for the other nodes either") {
        story.all_end(Signaled{SIGINT});
        CHECK(story.signal(SIGINT) == "ask SIGINT, close_timeout 2 s");
        CHECK(story.signal(SIGINT) == "ask SIGINT, finish stopped 130");
      }
      THEN("a round that was ordered before the coordinator heard of it is not started") {
        story.all_end(Signaled{SIGINT});
        CHECK(story.ordered(1) == "ask SIGINT, report stopped");
      }
    }
    WHEN("another node heard Ctrl-C first") {
      story.now += seconds{60};  // they are past their start
      CHECK(story.stop(SIGINT, seconds{15}, true) == "SIGINT, grace 15 s");
      THEN("the second one hurried that node only") {
        story.now += seconds{2};
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell hurry, SIGTERM, escaped, grace 2 s");
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell killing, kill, give_up 10 s");
      }
      THEN("a second Ctrl-C of acc-launch --hosts didn't reach the nodes that heard of the first") {
        story.group.stop.is_from_one_launch = true;
        story.now += Millis{300};
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell hurry, SIGTERM, escaped, grace 2 s");
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell killing, kill, give_up 10 s");
      }
      THEN("the same one, sent to all nodes, hurries nothing") {
        CHECK(story.signal(SIGINT) == "ask SIGINT");
        CHECK(story.signal(SIGINT) == "ask SIGINT, tell hurry, SIGTERM, escaped, grace 2 s");
      }
    }
    WHEN("the scheduler pre-empts it") {
      CHECK(story.signal(SIGUSR2) == "ask SIGUSR2, SIGUSR2, tell stopping, grace 30 s");
      story.all_end(Exited{0});
      CHECK(story.fires(Timer::close_timeout) == "finish preempted 75");
    }
  }
  GIVEN("a job whose nodes aren't all there yet") {
    Story story;
    story.awaiting();
    WHEN("SIGTERM comes") {
      CHECK(story.signal(SIGTERM) == "ask SIGTERM, close_timeout 2 s");
      THEN("it ends by the coordinator's word") {
        CHECK(story.closed(Outcome::stopped, 143) == "finish stopped 143");
      }
      THEN("or without it") {
        CHECK(story.ordered(0) == "ask SIGTERM, report stopped");
        CHECK(story.fires(Timer::close_timeout) == "finish stopped 143");
      }
    }
  }
  GIVEN("a worker that has the terminal") {
    Story story;
    story.group.terminal.rank = LocalRank{0};
    story.running();
    THEN("Ctrl-C in it is the whole job's") {
      CHECK(story.exits(0, Exited{130}) == "SIGTERM, escaped, grace 15 s, ask SIGINT");
      story.exits(1, Signaled{SIGTERM});
      CHECK(story.emptied() == "report stopped, close_timeout 25 s");
    }
    THEN("its failure after a Ctrl-C stops the whole job and restarts nothing") {
      CHECK(story.feed(TerminalInterrupted{story.now}).empty());
      CHECK(story.exits(0, Exited{1}) == "SIGTERM, escaped, grace 15 s, ask SIGINT");
      story.exits(1, Signaled{SIGTERM});
      CHECK(story.emptied() == "report stopped, close_timeout 25 s");
      CHECK(story.ordered(1) == "ask SIGINT, report stopped");
    }
    THEN("its failure without one is reported when no Ctrl-C can follow any more") {
      CHECK(story.exits(0, Exited{1}) == "interrupt 100 ms");
      CHECK(story.fires(Timer::interrupt) ==
            "SIGTERM, escaped, grace 15 s, report failed, tell failure");
    }
  }
}

TEST_CASE("the end of a hanging round made a victim on another node the culprit", "[agent][supervisor]") {
  Story story;
  story.running();
  story.now += seconds{60};
  CHECK(story.feed(HangFound{LocalRank{1}, "hung", story.now}) == "report failed, tell failure, grace 500 ms");
  SECTION("the order for all nodes ends the workers") {
    CHECK(story.stop(0, seconds{15}, false) == "SIGTERM, escaped, grace 15 s");
  }
  SECTION("without it they end soon") {
    CHECK(story.fires(Timer::grace) == "SIGTERM, escaped, grace 15 s");
  }
  CHECK(story.group.first_failure->local_rank == LocalRank{1});
}

SCENARIO("ranks that failed for want of one on another node were reported before it",
         "[agent][supervisor]") {
  Story story;
  story.running();
  const auto follows = [&](std::uint32_t rank) {
    return story.feed(WorkerExited{LocalRank{rank}, Exited{1}, story.now, false, true});
  };
  CHECK(follows(0) == "culprit 2 s");
  CHECK(follows(1).empty());
  WHEN("the other node's report leads to the order to stop") {
    CHECK(story.stop(0, seconds{15}) == "SIGTERM, left_over 150 ms, grace 15 s");
    THEN("nothing failed first here") {
      CHECK(story.emptied() == "report stopped");
      CHECK_FALSE(story.group.first_failure);
    }
  }
  WHEN("no order arrives") {
    const auto exited = story.now;
    story.now += seconds{2};
    CHECK(story.fires(Timer::culprit) ==
          "SIGTERM, left_over 150 ms, grace 15 s, report failed, tell failure");
    THEN("the time is that of the exit") { CHECK(story.group.first_failure->when == exited); }
  }
  WHEN("the job is to end by a signal") {
    CHECK(story.signal(SIGTERM) ==
          "SIGTERM, left_over 150 ms, grace 15 s, report failed, tell failure, ask SIGTERM, tell "
          "no restart");
  }
}

SCENARIO("orders to stop may shorten what is under way", "[agent][supervisor]") {
  Story story;
  story.running();
  GIVEN("workers that were asked by SIGINT to end within 15 s") {
    story.now += seconds{60};  // they are past their start
    story.stop(SIGINT, seconds{15});
    story.now += seconds{5};
    THEN("a later end changes nothing") {
      CHECK(story.stop(SIGINT, seconds{15}).empty());
      CHECK(story.stop(SIGINT, seconds{10}).empty());
    }
    THEN("an earlier one does") { CHECK(story.stop(SIGINT, seconds{9}) == "grace 9 s"); }
    THEN("SIGTERM comes with a grace of its own") {
      CHECK(story.stop(0, seconds{15}) == "SIGTERM, escaped, grace 15 s");
    }
    THEN("who was never asked by SIGTERM is asked before the kill") {
      CHECK(story.fires(Timer::grace) == "SIGTERM, escaped, grace 2 s");
    }
  }
}

SCENARIO("the round is called off while its workers are being made", "[agent][supervisor]") {
  Story story;
  story.starting();
  const std::string killed = "kill, give_up 10 s";
  WHEN("by an order to stop") {
    CHECK(story.stop(0, seconds{3}) == killed);
    CHECK(story.emptied() == "report stopped");
  }
  WHEN("by the end of the lease") {
    CHECK(story.feed(LeaseOver{story.now}) == killed);
    CHECK(story.emptied() == "report stopped");
  }
  WHEN("by the end of the job") {
    CHECK(story.closed(Outcome::stopped, 143) == killed);
    CHECK(story.emptied() == "finish stopped 143");
    CHECK(story.group.stop_signal == SIGTERM);  // for the report, though it came to another node
  }
  WHEN("by a signal") {
    CHECK(story.signal(SIGINT) == "ask SIGINT, " + killed);
    CHECK(story.emptied() == "report stopped, close_timeout 25 s");
  }
  WHEN("by the guardian's loss") {
    CHECK(story.feed(GuardianLost{story.now}) == killed);
    CHECK(story.emptied() == "finish guardian_lost 70");
  }
}

SCENARIO("the job was to end for good, and the coordinator never closes it",
         "[agent][supervisor]") {
  Story story;
  story.running();
  WHEN("this node's worker had failed") {
    story.exits(0, Exited{7});
    story.stop(0, seconds{15}, true);
    story.exits(1, Signaled{SIGTERM});
    CHECK(story.emptied() == "report stopped, close_timeout 25 s");
    CHECK(story.fires(Timer::close_timeout) == "finish failed 7");
  }
  WHEN("it had failed with a code of --no_restart_codes") {
    story.group.restart.never_retry = {{7, 7}};
    story.exits(0, Exited{7});
    story.stop(0, seconds{15}, true);
    story.exits(1, Signaled{SIGTERM});
    story.emptied();
    CHECK(story.fires(Timer::close_timeout) == "finish never_retry 7");
  }
  WHEN("a signal came to another node") {
    story.stop(SIGTERM, seconds{15}, true);
    story.all_end();
    CHECK(story.fires(Timer::close_timeout) == "finish stopped 143");
  }
  WHEN("a successor stopped the round for a node that it had lost") {
    story.stop(SIGTERM, seconds{15}, true);
    story.stop(0, seconds{15});
    story.all_end();
    CHECK(story.fires(Timer::close_timeout) == "finish stopped 143");
  }
}

SCENARIO("another node fails while a script has hardly begun here", "[agent][supervisor]") {
  Story story;
  story.group.startup_grace = Millis{500};
  story.running();
  story.now += Millis{200};
  GIVEN("the order to stop for another round") {
    CHECK(story.stop(0, seconds{15}) == "startup 300 ms");
    THEN("it is carried out when the script got to its first lines") {
      story.now += Millis{300};
      CHECK(story.fires(Timer::startup) == "SIGTERM, escaped, grace 15 s");
    }
    THEN("an error of this script itself is reported before") {
      CHECK(story.exits(0, Exited{1}) ==
            "SIGTERM, escaped, grace 15 s, report failed, tell failure");
      CHECK(story.fires(Timer::startup).empty());
      story.exits(1, Signaled{SIGTERM});
      CHECK(story.emptied() == "report stopped");
    }
    THEN("workers that end by themselves count as stopped") {
      CHECK(story.all_end(Exited{0}) == "report stopped");
      CHECK(story.fires(Timer::startup).empty());
    }
    THEN("the end of the job is not held back") {
      CHECK(story.stop(SIGTERM, seconds{15}, true) == "SIGTERM, escaped, grace 15 s");
      CHECK(story.fires(Timer::startup).empty());
    }
    THEN("nor is the end of the lease") {
      CHECK(story.feed(LeaseOver{story.now}) == "kill, give_up 10 s");
    }
  }
  GIVEN("the order to kill") {
    CHECK(story.stop(SIGKILL, seconds{0}) == "tell killing, kill, give_up 10 s");
  }
  GIVEN("workers that are old enough") {
    story.now += Millis{300};
    CHECK(story.stop(0, seconds{15}) == "SIGTERM, escaped, grace 15 s");
  }
}

SCENARIO("a stopped job began anew when its coordinator was lost during the stop",
         "[agent][supervisor]") {
  Story story;
  story.running();
  GIVEN("an order to end for good, by a signal that another node received") {
    story.stop(SIGINT, seconds{15}, true);
    CHECK(story.all_end() == "report stopped, close_timeout 25 s");
    THEN("a successor that starts a round learns of the signal") {
      CHECK(story.ordered(4) == "ask SIGINT, report stopped");
      CHECK(story.closed(Outcome::stopped, 130) == "finish stopped 130");
    }
  }
  GIVEN("the successor's order to stop the round for the node that it had lost") {
    story.stop(SIGUSR1, seconds{300}, true);
    // It cut the grace after the signal, and sent SIGTERM to workers that were saving.
    CHECK(story.stop(0, seconds{15}) == "ask SIGUSR1");
    CHECK(story.all_end() == "report stopped, close_timeout 5 min 10 s");
    THEN("it is told again") {
      CHECK(story.stop(0, seconds{15}) == "ask SIGUSR1, report stopped, close_timeout 5 min 10 s");
    }
    THEN("its next round is refused") { CHECK(story.ordered(4) == "ask SIGUSR1, report stopped"); }
  }
}

SCENARIO("a signal comes while no coordinator can be reached", "[agent][supervisor]") {
  Story story;
  GIVEN("a node that still looks for the others") {
    story.awaiting();
    story.feed(LinkChanged{false});
    CHECK(story.signal(SIGTERM) == "ask SIGTERM, close_timeout 1 s");
    THEN("it ends by itself after a moment") {
      CHECK(story.fires(Timer::close_timeout) == "finish stopped 143");
    }
    THEN("it waits for the answer of one that is found within it") {
      CHECK(story.feed(LinkChanged{true}) == "close_timeout 2 s");
      CHECK(story.closed(Outcome::stopped, 143) == "finish stopped 143");
    }
    THEN("that none is found is not why it ends") {
      CHECK(story.feed(GaveUp{{Outcome::nodes_missing, 69}, false, story.now}) ==
            "finish stopped 143");
    }
    THEN("a refusal is") {
      CHECK(story.feed(GaveUp{{Outcome::nodes_missing, 77}, true, story.now}) ==
            "finish nodes_missing 77");
    }
  }
  GIVEN("running workers") {
    story.running();
    story.feed(LinkChanged{false});
    WHEN("it ends the job") {
      CHECK(story.signal(SIGTERM) == "ask SIGTERM, SIGTERM, tell stopping, grace 15 s");
      CHECK(story.feed(GaveUp{{Outcome::nodes_missing, 69}, false, story.now}).empty());
      CHECK(story.all_end() == "report stopped, close_timeout 1 s");
      CHECK(story.fires(Timer::close_timeout) == "finish stopped 143");
    }
    WHEN("it ends nothing") {
      THEN("it is passed on to the workers of this node") {
        CHECK(story.signal(SIGUSR1) == "SIGUSR1");
      }
    }
  }
}
