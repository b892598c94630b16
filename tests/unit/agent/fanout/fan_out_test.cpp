#include "agent/fanout/fan_out.hpp"

#include "common/exit_codes.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

template <class Action>
std::vector<Action> all(const FanOutActions& actions) {
  std::vector<Action> found;
  for (const auto& action : actions) {
    if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
  }
  return found;
}

template <class Action>
std::size_t count(const FanOutActions& actions) {
  return all<Action>(actions).size();
}

std::vector<Millis> delays_of(FanOutTimer timer, const FanOutActions& actions) {
  std::vector<Millis> delays;
  for (const auto& armed : all<ArmFanOutTimer>(actions)) {
    if (armed.timer == timer) delays.push_back(armed.delay);
  }
  return delays;
}

/// A job on some hosts, and what was ordered since the last look.
struct Story {
  explicit Story(std::size_t hosts, std::size_t at_once = 64) {
    FanOutPolicy policy;
    policy.version = "1.0";
    policy.at_once = at_once;
    state = fan_out_over(hosts, policy);
  }
  FanOutActions operator()(const FanOutEvent& event) { return step(state, event); }
  FanOutActions prepared(HostIndex host) { return (*this)(HostPrepared{host, "1.0"}); }
  FanOutActions exited(HostIndex host, int code) {
    return (*this)(TransportExited{host, Exited{code}, "said this"});
  }
  /// acc-launch there says how the job ended, and exits.
  FanOutActions ended(HostIndex host, int code) {
    auto actions = (*this)(HostReportedEnd{host, code});
    const auto more = exited(host, code);
    actions.insert(actions.end(), more.begin(), more.end());
    return actions;
  }
  void run_all() {
    (*this)(FanOutBegan{});
    for (HostIndex i = 0; i < state.hosts.size(); ++i) prepared(i);
    REQUIRE(state.phase == FanOutPhase::running);
  }
  /// Through daemons, and all of them are needed.
  void run_all_on_daemons() {
    state.policy.min_hosts = state.hosts.size();
    state.policy.uses_daemons = true;
    run_all();
    for (HostIndex host = 0; host < state.hosts.size(); ++host) {
      (*this)(HostReportedStart{host, "job"});
      (*this)(HostWorks{host, true});
    }
  }
  static std::optional<int> finish(const FanOutActions& actions) {
    const auto found = all<FinishFanOut>(actions);
    REQUIRE(found.size() <= 1);
    return found.empty() ? std::nullopt : std::optional{found[0].exit_code};
  }
  FanOutState state;
};

}  // namespace

SCENARIO("no host starts before all are prepared", "[agent][fanout]") {
  GIVEN("three hosts") {
    Story story{3};
    const auto begun = story(FanOutBegan{});
    CHECK(count<StartTransport>(begun) == 3);
    WHEN("two are prepared") {
      CHECK(count<SendGo>(story.prepared(2)) == 0);
      CHECK(count<SendGo>(story.prepared(0)) == 0);
      THEN("the third lets all go") {
        CHECK(count<SendGo>(story.prepared(1)) == 3);
        CHECK(story.state.phase == FanOutPhase::running);
      }
      AND_WHEN("the third can't take part") {
        const auto actions = story.exited(1, 127);
        THEN("it is named, the others are let go, and nothing started") {
          CHECK(count<TellTroubles>(actions) == 1);
          CHECK(count<CloseLifeLine>(actions) == 2);
          CHECK(count<SendGo>(actions) == 0);
          CHECK(story.state.hosts[1].trouble->text == "said this");
          CHECK(Story::finish(story.exited(0, 69)) == std::nullopt);
          CHECK(Story::finish(story.exited(2, 69)) == to_int(ExitCode::failure));
        }
      }
    }
  }
}

SCENARIO("only so many transports are started at once", "[agent][fanout]") {
  Story story{100, 8};
  CHECK(count<StartTransport>(story(FanOutBegan{})) == 8);
  std::size_t started = 8;
  for (HostIndex i = 0; i < 100; ++i) {
    const auto actions = story.prepared(i);
    started += count<StartTransport>(actions);
    CHECK(started <= i + 9);
    CHECK(count<SendGo>(actions) == (i == 99 ? 100 : 0));
  }
  CHECK(started == 100);
}

TEST_CASE("a report that can't be written had another exit code on hosts", "[agent][fanout]") {
  for (const int second : {73, 2}) {
    Story story{3};
    story(FanOutBegan{});
    story.exited(0, 73);
    story.exited(1, second);
    story.prepared(2);
    CHECK(Story::finish(story.exited(2, 0)) == (second == 73 ? 73 : 1));
  }
}

SCENARIO("all that hosts lack is named in one message", "[agent][fanout]") {
  GIVEN("four hosts, the first of which fails") {
    Story story{4};
    story(FanOutBegan{});
    const auto first = story.exited(0, 255);
    CHECK(count<TellTroubles>(first) == 0);
    REQUIRE(all<ArmFanOutTimer>(first).at(0).timer == FanOutTimer::verdict);
    CHECK(all<ArmFanOutTimer>(first).at(0).delay <= Millis{5'000});
    WHEN("all others have answered") {
      story.prepared(1);
      story(TransportFailed{2, ENOENT});
      const auto last = story(HostPrepared{3, "0.9"});
      THEN("the message comes at once, with the three") {
        CHECK(count<TellTroubles>(last) == 1);
        CHECK(story.state.hosts[0].trouble->what == HostTrouble::What::exited);
        CHECK(!story.state.hosts[1].trouble);
        CHECK(story.state.hosts[2].trouble->what == HostTrouble::What::not_started);
        CHECK(story.state.hosts[3].trouble->what == HostTrouble::What::other_version);
      }
    }
    WHEN("one is silent for the rest of that time") {
      story.prepared(1);
      story.prepared(2);
      const auto verdict = story(FanOutTimerFired{FanOutTimer::verdict});
      THEN("it is named as silent, and its life line is closed, too") {
        CHECK(count<TellTroubles>(verdict) == 1);
        CHECK(count<CloseLifeLine>(verdict) == 3);
        CHECK(story.state.hosts[3].trouble->what == HostTrouble::What::silent);
      }
      THEN("a transport that stays is killed") {
        const auto killed = story(FanOutTimerFired{FanOutTimer::leave});
        CHECK(count<KillTransport>(killed) == 3);
        story(TransportExited{1, Signaled{SIGKILL}, ""});
        story(TransportExited{2, Signaled{SIGKILL}, ""});
        CHECK(Story::finish(story(TransportExited{3, Signaled{SIGKILL}, ""})) == 1);
      }
    }
  }
}

SCENARIO("without a word of any host the start is given up", "[agent][fanout]") {
  Story story{2};
  story(FanOutBegan{});
  const auto actions = story(FanOutTimerFired{FanOutTimer::start});
  CHECK(count<TellTroubles>(actions) == 1);
  CHECK(count<CloseLifeLine>(actions) == 2);
}

TEST_CASE("the exit code is the job's", "[agent][fanout]") {
  struct Row {
    std::vector<std::optional<int>> codes;  ///< in the order of the ends; nothing: lost
    int expected;
  };
  const Row rows[] = {{{0, 0, 0}, 0},
                      {{7, 7, 7}, 7},
                      {{0, 7, 0}, 7},
                      {{3, 4, 5}, 3},
                      {{std::nullopt, 1, 1}, 1},
                      {{1, std::nullopt, 1}, 1},
                      {{0, std::nullopt, 0}, 0},
                      {{std::nullopt, std::nullopt, std::nullopt}, to_int(ExitCode::nodes_missing)},
                      {{255, 255, 255}, 255},
                      {{70, 0, 0}, 0},
                      {{0, 69, 0}, 0},
                      {{74, 0, 0}, 0},  // unfit: it left, and the job went on without it
                      {{74, 69, 69}, 74},  // the others missed the unfit one
                      {{69, 74, 69}, 74},
                      {{70, 7, 7}, 7},
                      {{77, 143, 143}, 143},
                      {{70, std::nullopt, std::nullopt}, 70},
                      {{69, 70, 70}, 69},
                      {{70, 69, 69}, 69}};  // killed on one: the others' nodes_missing is the job's
  for (const auto& row : rows) {
    Story story{3};
    story.run_all();
    std::optional<int> code;
    for (HostIndex i = 0; i < 3; ++i) {
      CHECK(!code);
      const auto said = row.codes[i];
      const auto actions = said ? story.ended(i, *said) : story.exited(i, 255);
      CHECK(count<TellLost>(actions) == (said ? 0 : 1));
      code = Story::finish(actions);
    }
    CHECK(code == row.expected);
  }
}

SCENARIO("signals are passed on", "[agent][fanout]") {
  GIVEN("a job that runs on three hosts") {
    Story story{3};
    story.run_all();
    THEN("a first Ctrl-C goes to one host, whose coordinator tells the others") {
      const auto sent = all<SendSignal>(story(FanOutSignal{SIGINT}));
      REQUIRE(sent.size() == 1);
      CHECK(sent[0].host == 0);
      CHECK(sent[0].signo == SIGINT);
      AND_THEN("a second one goes to all") {
        CHECK(count<SendSignal>(story(FanOutSignal{SIGINT})) == 3);
      }
    }
    THEN("SIGUSR1 goes to one host each time") {
      CHECK(count<SendSignal>(story(FanOutSignal{SIGUSR1})) == 1);
      CHECK(count<SendSignal>(story(FanOutSignal{SIGUSR1})) == 1);
    }
    THEN("it goes to the next host if the first one is lost") {
      story.exited(0, 255);
      CHECK(all<SendSignal>(story(FanOutSignal{SIGTERM})).at(0).host == 1);
    }
    THEN("a host whose part has ended, and whose connection hasn't, gets none") {
      story(HostReportedEnd{0, 74});
      CHECK(all<SendSignal>(story(FanOutSignal{SIGINT})).at(0).host == 1);
    }
    THEN("a job that was stopped and lost has the signal's code") {
      story(FanOutSignal{SIGTERM});
      story.exited(0, 255);
      story.exited(1, 255);
      CHECK(Story::finish(story.exited(2, 255)) == 128 + SIGTERM);
    }
  }
  GIVEN("hosts that are being started") {
    Story story{3, 2};
    story(FanOutBegan{});
    story.prepared(0);
    const auto stopped = story(FanOutSignal{SIGINT});
    THEN("nothing starts any more, and the code is the signal's") {
      CHECK(count<TellStoppedEarly>(stopped) == 1);
      CHECK(count<CloseLifeLine>(stopped) == 3);
      CHECK(count<StartTransport>(story.prepared(1)) == 0);
      story.exited(0, 69);
      story.exited(1, 69);
      CHECK(Story::finish(story.exited(2, 69)) == 130);
    }
    THEN("another Ctrl-C kills the transports") {
      CHECK(count<KillTransport>(story(FanOutSignal{SIGINT})) == 3);
    }
  }
}

TEST_CASE("two names of one machine counted as two hosts", "[agent][fanout]") {
  Story story{3};
  story(FanOutBegan{});
  story(HostPrepared{0, "1.0", "x"});
  story(HostPrepared{1, "1.0", "y"});
  CHECK_FALSE(story.state.has_failed);
  const auto last = story(HostPrepared{2, "1.0", "x"});
  CHECK(count<SendGo>(last) == 0);
  REQUIRE(story.state.hosts[2].trouble);
  CHECK(story.state.hosts[2].trouble->what == HostTrouble::What::same_daemon);
  CHECK(story.state.hosts[2].trouble->other == 0);
}

TEST_CASE("three times Ctrl-C did not end a launch with an unreachable host", "[agent][fanout]") {
  for (const int failed : {0, 7}) {
    Story story{2};
    story.run_all();
    story(FanOutSignal{SIGINT});
    story(FanOutSignal{SIGINT});
    const auto third = story(FanOutSignal{SIGINT});
    CHECK(count<SendSignal>(third) == 2);  // those that hear kill their workers
    CHECK(count<KillTransport>(third) == 0);
    const auto timer = all<ArmFanOutTimer>(third).at(0);
    CHECK(timer.timer == FanOutTimer::hurry);
    CHECK(timer.delay <= Millis{2'000});
    if (failed != 0) story.ended(0, failed);
    const auto left = story(FanOutTimerFired{FanOutTimer::hurry});
    CHECK(all<TellLeft>(left).back().host == 1);
    CHECK(all<KillTransport>(left).back().host == 1);
    if (failed == 0) CHECK(Story::finish(story.exited(0, 137)) == std::nullopt);
    const auto gone = story.exited(1, 137);
    CHECK(count<TellLost>(gone) == 0);
    CHECK(Story::finish(gone) == (failed == 0 ? 130 : failed));
  }
}

TEST_CASE("a fourth Ctrl-C on several hosts leaves at once", "[agent][fanout]") {
  Story story{2};
  story.run_all();
  for (int i = 0; i < 3; ++i) story(FanOutSignal{SIGINT});
  CHECK(count<KillTransport>(story(FanOutSignal{SIGINT})) == 2);
  story.exited(0, 137);
  CHECK(Story::finish(story.exited(1, 137)) == 130);
}

TEST_CASE("one Ctrl-C waited a minute for an unreachable host", "[agent][fanout]") {
  const HostSilence silence{Instant{}, Instant{} + Millis{60'000}};
  GIVEN("a host that is known to be unreachable, the first one") {
    Story story{3};
    story.run_all();
    CHECK(count<TellContact>(story(HostContact{0, silence})) == 1);
    CHECK(all<SendSignal>(story(FanOutSignal{SIGINT})).at(0).host == 1);
    CHECK(count<TellLeft>(story.ended(1, 130)) == 0);
    const auto left = story(FanOutTimerFired{FanOutTimer::stop});
    CHECK(all<TellLeft>(left).at(0).host == 0);
    CHECK(all<KillTransport>(left).at(0).host == 0);
    story.exited(0, 137);
    CHECK(Story::finish(story.ended(2, 130)) == 130);
  }
  GIVEN("one whose silence shows only after the Ctrl-C") {
    Story story{2};
    story.run_all();
    CHECK(all<SendSignal>(story(FanOutSignal{SIGINT})).at(0).host == 0);
    CHECK(all<SendSignal>(story(HostContact{0, silence})).at(0).host == 1);
    story.ended(1, 130);
    CHECK(count<TellContact>(story(HostContact{0, std::nullopt})) == 1);
    CHECK(count<KillTransport>(story(HostContact{0, silence})) == 1);
    CHECK(Story::finish(story.exited(0, 137)) == 130);
  }
}

TEST_CASE("one Ctrl-C counted as two on a host that heard it when another one fell silent",
          "[agent][fanout]") {
  const HostSilence silence{Instant{}, Instant{} + Millis{60'000}};
  Story story{3};
  story.run_all();
  CHECK(all<SendSignal>(story(FanOutSignal{SIGINT})).at(0).host == 0);
  CHECK(count<SendSignal>(story(HostContact{2, silence})) == 0);
  // Of the one that heard it nobody knows whether it told the others: they take SIGTERM for no
  // second request.
  const auto asked = all<SendSignal>(story(HostContact{0, silence}));
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].host == 1);
  CHECK(asked[0].signo == SIGTERM);
  const auto again = all<SendSignal>(story(HostContact{0, std::nullopt}));
  REQUIRE(again.size() == 1);
  CHECK(again[0].host == 0);
  CHECK(again[0].signo == SIGTERM);
  story.ended(0, 143);
  story.ended(1, 143);
  CHECK(Story::finish(story.ended(2, 143)) == 130);
}

SCENARIO("a host that doesn't follow the end of the others is cut off", "[agent][fanout]") {
  Story story{2};
  story.run_all();
  const auto ended = story.ended(0, 0);
  CHECK(delays_of(FanOutTimer::end, ended) == std::vector{story.state.policy.end_patience});
  const auto late = story(FanOutTimerFired{FanOutTimer::end});
  CHECK(all<TellLate>(late).at(0).host == 1);
  CHECK(all<CloseLifeLine>(late).at(0).host == 1);
  CHECK(Story::finish(story.ended(1, 70)) == to_int(ExitCode::success));
}

TEST_CASE("a job that succeeded without a host that was cut off had exit code 143",
          "[agent][fanout]") {
  Story story{3};
  story.run_all();
  story.ended(0, 0);
  story.ended(2, 0);
  CHECK(count<CloseLifeLine>(story(FanOutTimerFired{FanOutTimer::end})) == 1);
  CHECK(Story::finish(story.ended(1, 143)) == 0);
}

TEST_CASE("a job that succeeded waited two minutes for a host that was cut off",
          "[agent][fanout]") {
  Story story{3};
  story.run_all();
  story(HostContact{1, HostSilence{Instant{}, {}}});
  CHECK(delays_of(FanOutTimer::end, story.ended(0, 0)) ==
        std::vector{story.state.policy.end_patience});
  GIVEN("it is apart still, or back and looks for the job") {
    story(HostContact{1, std::nullopt});
    CHECK(delays_of(FanOutTimer::end, story.ended(2, 0)) ==
          std::vector{story.state.policy.apart_patience});
  }
  GIVEN("it takes part again") {
    story(HostWorks{1, true});
    CHECK(count<ArmFanOutTimer>(story.ended(2, 0)) == 0);
  }
}

namespace {

const HostSilence kSilent{Instant{} + Millis{5'000}, Instant{} + Millis{65'000}};

/// A host that can't be reached is left with this line, and its transport ends.
void check_left(Story& story, const FanOutActions& actions, HostIndex host, int code) {
  REQUIRE(all<TellLeft>(actions).size() == 1);
  CHECK(all<TellLeft>(actions)[0].host == host);
  CHECK(all<TellLeft>(actions)[0].is_over);
  CHECK(all<KillTransport>(actions).at(0).host == host);
  CHECK(count<TellLate>(actions) == 0);
  const auto gone = story.exited(host, 137);
  CHECK(count<TellLost>(gone) == 0);
  CHECK(Story::finish(gone) == code);
}

bool arms_apart(const FanOutState& state, const FanOutActions& actions) {
  return delays_of(FanOutTimer::apart, actions) == std::vector{state.policy.apart_patience};
}

}  // namespace

TEST_CASE("a job that had ended waited a minute for a host that could be reached no longer",
          "[agent][fanout]") {
  const int code = GENERATE(0, 3);
  Story story{3};
  story.run_all_on_daemons();
  SECTION("its silence was told before the end: it was said to be killed") {
    story(HostContact{2, kSilent});
    CHECK(arms_apart(story.state, story.ended(0, code)));
    CHECK_FALSE(story.state.hosts[2].silence->until);  // it isn't given up then
    story.ended(1, code);
    check_left(story, story(FanOutTimerFired{FanOutTimer::apart}), 2, code);
  }
  SECTION("behind it") {
    story.ended(0, code);
    story.ended(1, code);
    CHECK(count<TellContact>(story(HostContact{2, kSilent})) == 1);
    check_left(story, story(FanOutTimerFired{FanOutTimer::apart}), 2, code);
  }
  SECTION("when its time was over") {
    story.ended(0, code);
    story.ended(1, code);
    CHECK(count<TellLeft>(story(FanOutTimerFired{FanOutTimer::apart})) == 0);
    const auto silent = story(HostContact{2, kSilent});
    CHECK(count<TellContact>(silent) == 0);  // nor is it waited for
    check_left(story, silent, 2, code);
  }
  SECTION("it answers again") {
    story(HostContact{2, kSilent});
    story.ended(0, code);
    story.ended(1, code);
    story(HostContact{2, std::nullopt});
    CHECK(count<TellLeft>(story(FanOutTimerFired{FanOutTimer::apart})) == 0);
    CHECK(Story::finish(story.ended(2, code)) == code);
  }
  SECTION("others get the time that they have") {
    story(HostContact{2, kSilent});
    story.ended(0, code);
    const auto over = story(FanOutTimerFired{FanOutTimer::apart});
    CHECK(count<KillTransport>(over) == 1);
    CHECK(count<CloseLifeLine>(over) == 0);
    story.exited(2, 137);
    CHECK(Story::finish(story.ended(1, code)) == code);
  }
}

TEST_CASE("a host that could be reached no longer was said to be killed, two minutes later",
          "[agent][fanout]") {
  Story story{2};
  story.run_all_on_daemons();
  story.ended(0, 73);  // by itself, it may be: the other one's workers may run
  story(HostContact{1, kSilent});
  check_left(story, story(FanOutTimerFired{FanOutTimer::end}), 1, 73);
}

TEST_CASE(
    "the last host was waited for as if this machine had lost its network, when all others "
    "had ended without it",
    "[agent][fanout]") {
  const int missing = to_int(ExitCode::nodes_missing);
  Story story{3};
  story.run_all_on_daemons();
  const auto ends = [&](HostIndex host, Millis at) {
    auto actions = story(HostReportedEnd{host, missing, Instant{} + at});
    story.exited(host, 0);
    return actions;
  };
  SECTION("the job needs them") {
    CHECK_FALSE(arms_apart(story.state, ends(0, Millis{9'000})));
    SECTION("silent before their end") {
      CHECK(count<TellAlone>(story(HostContact{2, kSilent})) == 0);
      CHECK(arms_apart(story.state, ends(1, Millis{9'000})));
    }
    SECTION("behind it") {
      ends(1, Millis{9'000});
      const auto silent = story(HostContact{2, kSilent});
      CHECK(count<TellAlone>(silent) == 0);
      CHECK(arms_apart(story.state, silent));
    }
    check_left(story, story(FanOutTimerFired{FanOutTimer::apart}), 2, missing);
  }
  SECTION("it answered again, so there is another end of the job to be heard of") {
    story(HostContact{2, kSilent});
    ends(0, Millis{9'000});
    ends(1, Millis{9'000});
    story(HostContact{2, std::nullopt});
    CHECK(count<TellLeft>(story(FanOutTimerFired{FanOutTimer::apart})) == 0);
    CHECK(count<TellLeft>(story(HostContact{2, kSilent})) == 0);
    check_left(story, story(FanOutTimerFired{FanOutTimer::apart}), 2, missing);
  }
  SECTION("an elastic job may go on there") {
    story.state.policy.min_hosts = 1;
    const Millis at = GENERATE(Millis{1'000}, Millis{9'000});  // before and behind its last answer
    ends(0, at);
    ends(1, at);
    const auto silent = story(HostContact{2, kSilent});
    CHECK_FALSE(arms_apart(story.state, silent));
    CHECK(count<TellAlone>(silent) == (at < Millis{5'000} ? 1 : 0));
  }
}

TEST_CASE("a machine that lost its network gave a healthy job up after a minute",
          "[agent][fanout]") {
  const HostSilence silence{Instant{}, Instant{} + Millis{60'000}};
  const HostSilence longer{Instant{} + Millis{1}, Instant{} + Millis{600'000}};
  Story story{2};
  story.state.policy.uses_daemons = true;
  story.run_all();
  CHECK(count<SendWaitLonger>(story(HostContact{0, silence})) == 0);
  const auto alone = story(HostContact{1, silence});
  CHECK(count<TellAlone>(alone) == 1);
  CHECK(count<SendWaitLonger>(alone) == 2);
  CHECK(story(HostContact{0, longer}).empty());
  CHECK(story.state.hosts[0].silence->since == silence.since);
  CHECK(story.state.hosts[0].silence->until == longer.until);
}

TEST_CASE("after an early Ctrl-C a host that hadn't joined yet waited for the others",
          "[agent][fanout]") {
  const bool has_begun = GENERATE(false, true);
  Story story{3};
  story.run_all();
  if (has_begun) story(HostWorks{0, true});
  CHECK(count<SendSignal>(story(FanOutSignal{SIGINT})) == 1);
  const auto armed = all<ArmFanOutTimer>(story.ended(0, 130));
  REQUIRE(armed.size() == 2);
  CHECK(armed[1].timer == FanOutTimer::stop);
  CHECK(armed[1].delay == Millis{has_begun ? 3'000 : 250});
  story.ended(2, 130);
  const auto told = all<SendSignal>(story(FanOutTimerFired{FanOutTimer::stop}));
  REQUIRE(told.size() == 1);
  CHECK(told[0].host == 1);
  CHECK(told[0].signo == SIGTERM);
  CHECK(Story::finish(story.ended(1, 143)) == 130);
}

TEST_CASE("a job that went on without a lost host was stopped two minutes later",
          "[agent][fanout]") {
  Story story{3};
  story.run_all();
  CHECK(count<ArmFanOutTimer>(story.ended(0, to_int(ExitCode::agent_lost))) == 0);
  CHECK(all<ArmFanOutTimer>(story.ended(1, 0)).at(0).timer == FanOutTimer::end);
}

TEST_CASE("the others waited ten minutes for a node whose part had ended for good",
          "[agent][fanout]") {
  for (const int code : {69, 70, 74, 77, 73}) {
    Story story{3};
    story.state.policy.min_hosts = code == 73 ? 1 : 3;
    story.run_all();
    story.state.policy.uses_daemons = code == 70;
    for (const HostIndex host : {0U, 1U, 2U}) story(HostReportedStart{host, "job"});
    story(HostWorks{0, true});
    // Those that run workers may go on without us.
    for (const auto& armed : all<ArmFanOutTimer>(story.ended(1, code)))
      CHECK(armed.timer != FanOutTimer::rest);
    const auto idle = story(HostWorks{0, false, true});  // its work is lost with the round
    REQUIRE(all<ArmFanOutTimer>(idle).back().timer == FanOutTimer::rest);
    CHECK(all<ArmFanOutTimer>(idle).back().delay <= Millis{5'000});
    const auto told = story(FanOutTimerFired{FanOutTimer::rest});
    CHECK(all<TellMissed>(told).at(0).host == 1);
    REQUIRE(all<SendSignal>(told).size() == 2);
    CHECK(all<SendSignal>(told)[0].signo == SIGTERM);
    story.ended(0, 143);
    CHECK(Story::finish(story.ended(2, 143)) == code);
  }
}

TEST_CASE("a healthy job was stopped when the daemon of a host had been dead for a minute",
          "[agent][fanout]") {
  Story story{2};
  story.run_all_on_daemons();
  const auto rest_timers = [](const FanOutActions& actions) {
    return delays_of(FanOutTimer::rest, actions);
  };
  CHECK(rest_timers(story.exited(1, 255)).empty());
  SECTION("its workers were the last ones of the round") {
    CHECK(rest_timers(story(HostWorks{0, false, true})).empty());
    CHECK(Story::finish(story.ended(0, 0)) == 0);
  }
  SECTION("a restart was delayed") {
    CHECK(rest_timers(story(HostWorks{0, false, true})).empty());  // its workers save
    CHECK(rest_timers(story(HostWorks{0, false})) == std::vector{Millis{90'000}});
    CHECK(rest_timers(story(HostWorks{0, false})).empty());  // not longer with each event
    CHECK(count<DisarmFanOutTimer>(story(HostWorks{0, true})) == 1);
    CHECK(count<SendSignal>(story(FanOutTimerFired{FanOutTimer::rest})) == 0);
  }
  SECTION("the others wait for it in vain") {
    story(HostWorks{0, false});
    CHECK(count<SendSignal>(story(FanOutTimerFired{FanOutTimer::rest})) == 1);
    CHECK(Story::finish(story.ended(0, 143)) == to_int(ExitCode::nodes_missing));
  }
}

TEST_CASE("the last host waited ten minutes, as two others were lost one after the other",
          "[agent][fanout]") {
  Story story{3};
  story.run_all_on_daemons();
  story(HostWorks{0, false});
  CHECK(all<ArmFanOutTimer>(story.exited(1, 255)).empty());  // host 2 seems to work
  const auto armed = all<ArmFanOutTimer>(story.exited(2, 255));
  REQUIRE(armed.size() == 1);
  CHECK(armed[0].timer == FanOutTimer::rest);
}

TEST_CASE("a job whose lost node was given up had exit code 0", "[agent][fanout]") {
  Story story{2};
  story.state.policy.min_hosts = 2;
  story.run_all();
  story.exited(1, 255);
  CHECK(count<SendSignal>(story(FanOutTimerFired{FanOutTimer::rest})) == 1);
  CHECK(Story::finish(story.ended(0, 143)) == to_int(ExitCode::nodes_missing));
}

TEST_CASE("an attach to a job that had lost a node waited for it, and told that it goes on",
          "[agent][fanout]") {
  for (const std::size_t min : {2, 1}) {
    Story story{2};
    story.state.policy.leaves_at = 2;
    story.run_all_on_daemons();
    story.state.policy.min_hosts = min;
    const Instant begun{Millis{5'000}};
    story(HostReportedEnd{0, to_int(ExitCode::nodes_missing), begun});
    story.exited(0, to_int(ExitCode::nodes_missing));
    const auto told = story(HostContact{1, HostSilence{begun + Millis{10}, {}}});
    CHECK(count<TellAlone>(told) == 0);
    CHECK(count<SendSignal>(told) == 0);  // it only follows
    if (min == 1) {                       // the other node may be enough
      CHECK(delays_of(FanOutTimer::apart, told).empty());
      continue;
    }
    CHECK(delays_of(FanOutTimer::apart, told) == std::vector{story.state.policy.apart_patience});
    const auto left = story(FanOutTimerFired{FanOutTimer::apart});
    REQUIRE(all<TellLeft>(left).size() == 1);
    CHECK(all<TellLeft>(left)[0].is_over);
    CHECK(Story::finish(story.exited(1, 137)) == to_int(ExitCode::nodes_missing));
  }
}

TEST_CASE("a job with enough nodes left goes on, as one that was attached to", "[agent][fanout]") {
  for (const std::size_t min : {0, 2}) {
    Story story{3};
    story.state.policy.min_hosts = min;
    story.run_all();
    CHECK(count<ArmFanOutTimer>(story.ended(1, to_int(ExitCode::unfit))) == 0);
    CHECK(count<ArmFanOutTimer>(story.exited(2, 255)) == (min == 2 ? 1 : 0));
  }
}

TEST_CASE("any events in any order end in one exit code and leave no transport",
          "[agent][fanout]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    unsigned random = seed * 2654435761U + 1;
    const auto next = [&random](unsigned below) {
      random = random * 1664525U + 1013904223U;
      return (random >> 8U) % below;
    };
    Story story{1 + next(5), 1 + next(3)};
    story.state.policy.min_hosts = next(4);
    story.state.policy.leaves_at = next(3);
    std::vector<int> living(story.state.hosts.size(), 0);  // 0: not started, 1: lives, 2: gone
    std::size_t finishes = 0;
    const auto apply = [&](const FanOutActions& actions) {
      for (const auto& start : all<StartTransport>(actions)) {
        REQUIRE(living[start.host] == 0);
        living[start.host] = 1;
      }
      for (const auto& go : all<SendGo>(actions)) CHECK(living[go.host] == 1);
      finishes += count<FinishFanOut>(actions);
    };
    apply(story(FanOutBegan{}));
    for (int i = 0; i < 60 && finishes == 0; ++i) {
      const HostIndex host = next(static_cast<unsigned>(living.size()));
      const bool lives = living[host] == 1;
      switch (next(9)) {
        case 8:
          if (next(8) == 0) apply(story(FanOutReaderGone{}));
          break;
        case 6:
          if (lives) apply(story(HostWorks{host, next(2) == 0}));
          break;
        case 0:
          if (lives) apply(story(HostPrepared{host, next(8) == 0 ? "0.9" : "1.0"}));
          break;
        case 1:
          if (lives) apply(story(HostReportedEnd{host, static_cast<int>(next(3))}));
          break;
        case 2:
          if (!lives) break;
          living[host] = 2;
          apply(story(TransportExited{host, Exited{static_cast<int>(next(256))}, ""}));
          break;
        case 7:
          if (lives)
            apply(story(HostContact{host, next(2) == 0 ? std::nullopt : std::optional<HostSilence>{HostSilence{}}}));
          break;
        case 3:
          apply(story(FanOutSignal{std::array{SIGINT, SIGUSR1, SIGHUP}[next(3)]}));
          break;
        case 4:
          if (next(4) == 0)
            apply(story(FanOutTimerFired{static_cast<FanOutTimer>(next(kFanOutTimers))}));
          break;
        default:
          if (!lives || story.state.hosts[host].phase != HostPhase::starting) break;
          living[host] = 2;
          apply(story(TransportFailed{host, EAGAIN}));
      }
    }
    for (HostIndex host = 0; host < living.size(); ++host) {
      if (living[host] != 1) continue;
      living[host] = 2;
      apply(story(TransportExited{host, Exited{1}, ""}));
      host = static_cast<HostIndex>(-1);  // others may have been started by that
    }
    INFO(seed);
    CHECK(finishes == 1);
    CHECK(story.state.phase == FanOutPhase::finished);
  }
}

SCENARIO("hosts with daemons report the start of their jobs", "[agent][fanout]") {
  Story story{3};
  story.state.policy.uses_daemons = true;
  GIVEN("a job that is detached") {
    story.state.policy.detaches = true;
    story.run_all();
    story(HostReportedStart{0, "x.0-a"});
    CHECK(count<SendLeave>(story(HostReportedStart{2, "x.2-c"})) == 0);
    WHEN("the last one has started") {
      const auto known = story(HostReportedStart{1, "x.1-b"});
      CHECK(count<RecordLaunch>(known) == 1);
      CHECK(count<SendLeave>(known) == 0);
      CHECK(count<SendLeave>(story(HostWorks{0, true})) == 0);
      CHECK(count<SendLeave>(story(HostWorks{0, false})) == 0);
      CHECK(count<SendLeave>(story(HostWorks{2, true})) == 0);
      CHECK(count<SendLeave>(story(HostWorks{1, true})) == 3);
      THEN("the ends of the transports are no loss, and the exit code is 0") {
        CHECK(count<TellLost>(story.exited(0, 0)) == 0);
        story.exited(1, 0);
        CHECK(Story::finish(story.exited(2, 0)) == 0);
      }
    }
    WHEN("all parts have ended before any was seen at work: no ID was printed") {
      story(HostReportedStart{1, "x.1-b"});
      story.ended(0, 0);
      story.ended(1, 0);
      CHECK_FALSE(has_ended_before_detach(story.state));
      CHECK(Story::finish(story.ended(2, 0)) == 0);
      CHECK(has_ended_before_detach(story.state));
    }
    WHEN("a job that was refused on one node had printed its id and exit code 0") {
      story.state.policy.min_hosts = 3;
      story(HostReportedStart{1, "x.1-b"});
      story(HostWorks{0, true});
      story(HostWorks{0, false});
      CHECK(count<SendLeave>(story.ended(2, to_int(ExitCode::output))) == 0);
      CHECK(count<SendSignal>(story(FanOutTimerFired{FanOutTimer::rest})) == 2);
      story.ended(0, 143);
      CHECK(Story::finish(story.ended(1, 143)) == to_int(ExitCode::output));
      CHECK_FALSE(has_ended_before_detach(story.state));
    }
    WHEN("all are unfit") {
      story.state.policy.min_hosts = 3;
      story(HostReportedStart{1, "x.1-b"});
      story.ended(0, to_int(ExitCode::unfit));
      story.ended(1, to_int(ExitCode::unfit));
      CHECK(Story::finish(story.ended(2, to_int(ExitCode::unfit))) == to_int(ExitCode::unfit));
    }
    WHEN("the last one is refused") {
      const auto actions = story.exited(1, 1);
      THEN("the others are stopped") {
        CHECK(count<TellNotStarted>(actions) == 1);
        CHECK(count<CloseLifeLine>(actions) == 2);
        story.exited(0, 0);
        CHECK(Story::finish(story.exited(2, 0)) == to_int(ExitCode::failure));
      }
    }
    WHEN("a signal came first") {
      story(FanOutSignal{SIGTERM});
      CHECK(count<SendLeave>(story(HostReportedStart{1, "x.1-b"})) == 0);
    }
  }
  GIVEN("one that is followed") {
    story.run_all();
    for (HostIndex i = 0; i < 3; ++i) story(HostReportedStart{i, "x"});
    WHEN("the transport of one is lost later") {
      const auto actions = story.exited(1, 69);
      CHECK(count<TellLost>(actions) == 1);
      CHECK(count<CloseLifeLine>(actions) == 0);
    }
  }
  GIVEN("one that was attached to") {
    story.state.policy.leaves_at = 2;
    story.run_all();
    const auto asked = all<SendSignal>(story(FanOutSignal{SIGINT}));
    REQUIRE(asked.size() == 3);
    CHECK(asked[0].signo == SIGTERM);  // as acc-ctl stop
    CHECK(count<CloseLifeLine>(story(FanOutSignal{SIGINT})) == 3);
    story.exited(0, 69);
    story.exited(1, 69);
    const auto last = story.exited(2, 69);
    CHECK(count<TellLost>(last) == 0);
    CHECK(Story::finish(last) == 130);
  }
}

TEST_CASE("a terminal that closed during acc-ctl attach stopped the job", "[agent][fanout]") {
  for (const bool is_stopping : {false, true}) {
    for (const int signo : {SIGHUP, SIGTERM, SIGQUIT}) {
      Story story{2};
      story.state.policy.uses_daemons = true;
      story.state.policy.leaves_at = 2;
      story.run_all();
      if (is_stopping) CHECK(count<TellAsked>(story(FanOutSignal{SIGINT})) == 1);
      const auto left = story(FanOutSignal{signo});
      CHECK(count<SendSignal>(left) == 0);
      CHECK(count<CloseLifeLine>(left) == 2);
      CHECK(count<TellLetGo>(left) == 1);
      story.exited(0, 69);
      CHECK(Story::finish(story.exited(1, 69)) == 128 + signo);
    }
  }
}

TEST_CASE("acc-ctl logs -f went on without a reader until the launch ended", "[agent][fanout]") {
  for (const std::uint32_t leaves_at : {0, 1, 2}) {
    Story story{2};
    story.state.policy.leaves_at = leaves_at;
    story.run_all();
    const auto left = story(FanOutReaderGone{});
    CHECK(count<CloseLifeLine>(left) == (leaves_at == 0 ? 0 : 2));  // an acc-launch goes on
    CHECK(count<TellLetGo>(left) == 0);
    if (leaves_at == 0) continue;
    story.exited(0, 69);
    CHECK(Story::finish(story.exited(1, 69)) == 0);
  }
}

TEST_CASE("acc-ctl that is left before it follows anything ends, and says nothing of a job",
          "[agent][fanout]") {
  Story story{3, 2};
  story.state.policy.leaves_at = 2;
  story(FanOutBegan{});
  const auto left = story(FanOutSignal{SIGINT});
  CHECK(count<TellStoppedEarly>(left) == 0);
  CHECK(count<CloseLifeLine>(left) == 2);
  story.exited(0, 69);
  CHECK(Story::finish(story.exited(1, 69)) == 130);
}
