#include "launcher/ctl/bridge_machine.hpp"

#include "common/version.hpp"
#include "launcher/ctl/job_list.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <nlohmann/json.hpp>

namespace acc::ctl {
namespace {

using Json = nlohmann::json;

BridgeWish wish() {
  BridgeWish made;
  made.node = made.name = "b";
  made.launch = "hosts-x";
  made.nodes = 3;
  made.node_rank = 1;
  made.slots = 2;
  made.has_secret = true;
  made.words = {"train.py"};
  made.user = "ann";
  return made;
}

/// A bridge with what it did.
struct Story {
  explicit Story(BridgeWish of = wish()) : state{bridge_of(std::move(of))} {}

  Story& hears(const BridgeEvent& event) {
    actions = step(state, event);
    return *this;
  }
  Story& ordered(agent::LaunchOrder order) { return hears(BridgeOrdered{std::move(order)}); }
  Story& answered(BridgeAsk ask, unsigned status, const std::string& body) {
    return hears(BridgeAnswered{ask, status, body});
  }
  Story& prepared() {
    ordered(agent::SetFolder{"/work"});
    ordered(agent::SetVariable{"A", "1"});
    ordered(agent::Prepare{"token"});
    return answered(BridgeAsk::check, 200, R"({"ok": true, "version": "1.2"})");
  }
  Story& running() {
    prepared();
    ordered(agent::Go{});
    return answered(BridgeAsk::submit, 201, R"({"id": "hosts-x.1-abcdef"})");
  }

  template <class Action>
  [[nodiscard]] std::vector<Action> all() const {
    std::vector<Action> found;
    for (const auto& action : actions) {
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <class Action>
  [[nodiscard]] Action only() const {
    const auto found = all<Action>();
    REQUIRE(found.size() == 1);
    return found.front();
  }
  [[nodiscard]] bool asks(BridgeAsk what) const {
    for (const auto& one : all<AskDaemon>()) {
      if (one.ask == what) return true;
    }
    return false;
  }
  [[nodiscard]] std::optional<Millis> delay(BridgeTimer timer) const {
    for (const auto& one : all<ArmBridgeTimer>()) {
      if (one.timer == timer) return one.delay;
    }
    return std::nullopt;
  }

  BridgeState state;
  BridgeActions actions;
};

const std::string kOver = R"({"id": "hosts-x.1-abcdef", "state": "failed", "exit_code": 7})";
const std::string kRuns = R"({"id": "hosts-x.1-abcdef", "state": "running"})";

}  // namespace

TEST_CASE("a host named by an address with a zone was refused in words about a path",
          "[ctl][bridge]") {
  auto scoped = wish();
  scoped.node = "fe80::1%eth0";
  CHECK(check_request(scoped, {}).target == "/v1/nodes/fe80::1%25eth0/v1/jobs");
  CHECK(node_prefix("b") == "/v1/nodes/b");
  CHECK(node_prefix("").empty());
}

TEST_CASE("a daemon counted one slot for workers that it was to count itself", "[ctl][bridge]") {
  auto uncounted = wish();
  uncounted.slots.reset();
  Story story{uncounted};
  story.ordered(agent::SetFolder{"/work"}).ordered(agent::Prepare{"token"});
  CHECK_FALSE(Json::parse(story.only<AskDaemon>().body).contains("slots"));
  story.answered(BridgeAsk::check, 200, R"({"ok": true, "version": "1.2"})");
  story.ordered(agent::Go{});
  CHECK_FALSE(Json::parse(story.only<AskDaemon>().body).contains("slots"));
}

SCENARIO("a bridge submits what the life line says when all hosts are prepared", "[ctl][bridge]") {
  Story story;
  story.ordered(agent::SetFolder{"/work"}).ordered(agent::SetVariable{"A", "1"});
  CHECK(story.actions.empty());
  story.ordered(agent::Prepare{"token"});
  const auto check = story.only<AskDaemon>();
  CHECK(check.target == "/v1/nodes/b/v1/jobs");
  auto body = Json::parse(check.body);
  CHECK(body["check"] == true);
  CHECK(body["working_directory"] == "/work");
  CHECK(body["env"]["A"] == "1");
  CHECK(body["slots"] == 2);
  CHECK(body["launch"] == Json{{"id", "hosts-x"}, {"nodes", 3}, {"node_rank", 1}});
  story.answered(BridgeAsk::check, 200, R"({"ok": true, "version": "1.2"})");
  CHECK(std::get<agent::Prepared>(story.only<SendMark>().mark).version == "1.2");
  story.ordered(agent::Go{});
  body = Json::parse(story.only<AskDaemon>().body);
  CHECK_FALSE(body.contains("check"));
  CHECK(body["name"] == "hosts-x.1");
  story.answered(BridgeAsk::submit, 201, R"({"id": "hosts-x.1-abcdef"})");
  CHECK(std::get<agent::JobStarted>(story.only<SendMark>().mark).id == "hosts-x.1-abcdef");
  CHECK(story.all<OpenStream>().size() == 2);
  CHECK(story.all<OpenStream>()[0].target ==
        "/v1/nodes/b/v1/jobs/hosts-x.1-abcdef/logs?stream=stdout&format=raw&follow=1&from=0");
}

TEST_CASE("what a full disk of the node lost was told there alone, on that disk", "[ctl][bridge]") {
  Story story;
  story.running();
  const std::string over = R"({"id": "hosts-x.1-abcdef", "state": "succeeded", "exit_code": 0,)";
  story.answered(BridgeAsk::state, 200,
                 over + R"("report": {"losses": [{"where": "stdout", "why": "No space left on)"
                        R"( device", "bytes": 120, "lines": 9}, 7, {"where": 1, "lines": -2}]}})");
  const auto marks = story.all<SendMark>();
  REQUIRE(marks.size() == 2);
  const auto lost = std::get<agent::OutputLost>(marks[0].mark);
  CHECK(lost.where == "stdout");
  CHECK(lost.why == "No space left on device");
  CHECK(lost.lines == 9);
  CHECK(lost.bytes == 120);
  CHECK(std::get<agent::OutputLost>(marks[1].mark).lines == 0);
  AND_WHEN("it is asked again") {
    story.answered(BridgeAsk::state, 200,
                   over + R"("report": {"losses": [{"where": "stdout", "lines": 9}]}})");
    CHECK(story.all<SendMark>().empty());
  }
}

TEST_CASE("a full disk of a node was told at the terminal only when it worked again",
          "[ctl][bridge]") {
  const auto state = [](const std::string& losses) {
    return R"({"id": "hosts-x.1-abcdef", "state": "running", "live": {"losses": [)" + losses +
           "]}}";
  };
  const std::string full =
      R"({"where": "stderr", "why": "No space left on device", "lines": 9, "goes_on": true})";
  const std::string over =
      R"({"where": "stderr", "why": "No space left on device", "lines": 9, "goes_on": false})";
  Story story;
  story.running();
  story.answered(BridgeAsk::state, 200, state(""));
  CHECK(story.all<TellBridge>().empty());
  story.answered(BridgeAsk::state, 200, state(full));
  CHECK(story.only<TellBridge>().text ==
        "warning: what its part of the job writes can't be kept there: No space left on device; "
        "output is being dropped, the workers go on");
  story.answered(BridgeAsk::state, 200, state(full));
  CHECK(story.all<TellBridge>().empty());
  story.answered(BridgeAsk::state, 200, state(over));
  CHECK(story.all<TellBridge>().empty());
  story.answered(BridgeAsk::state, 200, state(full));
  CHECK(story.all<TellBridge>().size() == 1);
  WHEN("log files elsewhere are full, which the node itself tells") {
    story.answered(BridgeAsk::state, 200, state(R"({"where": "log files in /x", "goes_on": true})"));
    CHECK(story.all<TellBridge>().empty());
  }
}

TEST_CASE("a part of a launch that died before acc-launch began said nothing", "[ctl][bridge]") {
  const auto* reason = GENERATE("", "execute '/bin/acc-launch': Permission denied");
  Story story;
  story.ordered(agent::Prepare{"token"});
  story.answered(BridgeAsk::check, 200, R"({"ok": true, "version": "1.2"})");
  story.ordered(agent::Go{});
  story.answered(BridgeAsk::submit, 201, R"({"id": "hosts-x.1-abcdef"})");
  story.answered(
      BridgeAsk::state, 200,
      Json{{"id", "hosts-x.1-abcdef"}, {"state", "failed"}, {"exit_code", 126}, {"reason", reason}}
          .dump());
  const auto told = story.all<TellBridge>();
  REQUIRE(told.size() == (*reason == 0 ? 0 : 1));
  if (!told.empty())
    CHECK(told[0].text == std::string{"its job hosts-x.1-abcdef failed: "} + reason +
                              "; what it wrote: acc-ctl logs --node b hosts-x.1-abcdef");
}

SCENARIO("a node that can't run the job is told in one line, with its cure", "[ctl][bridge]") {
  struct Row {
    unsigned status;
    const char* body;
    const char* text;
    int code;
  };
  const auto row = GENERATE(
      Row{502, R"({"error": "b:29700: connection refused", "code": "no_daemon"})",
          "b:29700: connection refused", 69},
      Row{503, R"({"error": "this node is drained: new disks", "code": "unavailable"})",
          "this node is drained: new disks", 69},
      Row{502, R"({"error": "b leads back to this node, a", "code": "wrong_node"})",
          "b leads back to this node, a", 77},
      Row{403, R"({"error": "no such user: 'alice'", "code": "no_such_user"})",
          "no such user: 'alice'", 77},
      Row{429,
          R"({"error": "no room: running here: x: submit with --wait, or later", "code": "exhausted"})",
          "no room: running here: x: stop one of them, wait for it (--wait), or leave this host "
          "out",
          75},
      Row{429, R"({"error": "too many requests of 'ann' are open on b", "code": "node_full"})",
          "too many requests of 'ann' are open on b", 69},
      Row{429, R"({"error": "too many requests to b are open here", "code": "exhausted"})",
          "too many requests to b are open here", 69},
      Row{400, R"({"error": "acc-launch: --foo is no flag", "code": "bad_request"})",
          "--foo is no flag", 2},
      Row{500, "<html>", "its acc-agent answers with status 500", 1});
  Story story;
  story.ordered(agent::Prepare{"token"});
  story.answered(BridgeAsk::check, row.status, row.body);
  CHECK(story.only<TellBridge>().text == row.text);
  CHECK(story.only<FinishBridge>().code == row.code);
}

TEST_CASE("healthy launches were given up where their streams left a node no room for a question",
          "[ctl][bridge]") {
  const auto full = GENERATE(std::pair{429U, R"({"error": "too many", "code": "node_full"})"},
                             std::pair{503U, R"({"error": "too many", "code": "busy"})"});
  Story story;
  story.running().hears(BridgeTimerFired{BridgeTimer::silence});
  story.answered(BridgeAsk::state, full.first, full.second);
  CHECK(story.delay(BridgeTimer::contact));
  CHECK(story.delay(BridgeTimer::silence));
  CHECK(story.delay(BridgeTimer::state) == Millis{2'000});
  // What this node alone says is no word of that one.
  story.answered(BridgeAsk::state, 429, R"({"error": "too many", "code": "exhausted"})");
  CHECK_FALSE(story.delay(BridgeTimer::contact));
  CHECK(story.delay(BridgeTimer::state));
}

SCENARIO("a submission whose answer was lost is looked for, not made twice", "[ctl][bridge]") {
  Story story;
  story.prepared().ordered(agent::Go{});
  story.hears(BridgeUnanswered{BridgeAsk::submit, "the daemon is gone"});
  CHECK(story.delay(BridgeTimer::find));
  story.hears(BridgeTimerFired{BridgeTimer::find});
  CHECK(story.asks(BridgeAsk::find));
  WHEN("there is such a job") {
    story.answered(BridgeAsk::find, 200,
                   R"({"jobs": [{"id": "z", "name": "hosts-x.2", "user": "ann"},
                                {"id": "y", "name": "hosts-x.1", "user": "ann"}]})");
    CHECK(story.state.job == "y");
    CHECK(story.state.phase == BridgePhase::running);
  }
  WHEN("only another user's job has that name, which root's list shows") {
    story.answered(BridgeAsk::find, 200,
                   R"({"jobs": [{"id": "y", "name": "hosts-x.1", "user": "bob"}]})");
    CHECK(story.state.job.empty());
    CHECK(story.state.phase == BridgePhase::submitting);
  }
  WHEN("there is none for ten seconds") {
    for (int i = 0; i < 40 && story.state.phase != BridgePhase::finished; ++i)
      story.answered(BridgeAsk::find, 200, R"({"jobs": []})");
    CHECK(story.only<TellBridge>().text == "the job could not be started: the daemon is gone");
  }
}

SCENARIO("the end is reported when all output is copied and the exit code known", "[ctl][bridge]") {
  Story story;
  story.running();
  story.hears(BridgeCopied{false, 100});
  story.hears(BridgeStreamEnded{false, 200, true, {}});
  CHECK(story.actions.empty());
  story.hears(BridgeStreamEnded{true, 200, true, {}});
  CHECK(story.asks(BridgeAsk::state));
  story.answered(BridgeAsk::state, 200, kRuns);
  CHECK(story.delay(BridgeTimer::state) <= Millis{1000});
  story.answered(BridgeAsk::state, 200, kOver);
  CHECK(std::get<agent::JobEnded>(story.only<SendMark>().mark).exit_code == 7);
  CHECK(story.only<FinishBridge>().code == 0);
}

SCENARIO("a stream that broke off goes on where it was", "[ctl][bridge]") {
  Story story;
  story.running();
  story.hears(BridgeCopied{true, 4711});
  story.hears(BridgeStreamEnded{true, 200, false, {}});
  CHECK(story.delay(BridgeTimer::err) <= Millis{100});
  story.hears(BridgeTimerFired{BridgeTimer::err});
  CHECK(story.only<OpenStream>().target.ends_with("stream=stderr&format=raw&follow=1&from=4711"));
  for (int i = 0; i < 20; ++i) story.hears(BridgeStreamEnded{true, 0, false, {}});
  CHECK(story.delay(BridgeTimer::err) == Millis{2000});
  WHEN("an answer that was due is 5 s late") {
    story.hears(BridgeTimerFired{BridgeTimer::silence});
    const auto lost = std::get<agent::ContactLost>(story.only<SendMark>().mark);
    CHECK(lost.silent == Millis{15'000});
    CHECK(lost.limit == Millis{60'000});
    story.answered(BridgeAsk::state, 200, kRuns);
    CHECK(std::holds_alternative<agent::ContactBack>(story.only<SendMark>().mark));
    CHECK(story.delay(BridgeTimer::silence) == Millis{15'000});
  }
  WHEN("no host of the launch is in contact, so that this machine's network may be down") {
    story.hears(BridgeOrdered{agent::WaitLonger{}});
    CHECK(story.actions.empty());  // it has contact
    story.hears(BridgeTimerFired{BridgeTimer::silence});
    story.hears(BridgeOrdered{agent::WaitLonger{}});
    CHECK(story.delay(BridgeTimer::contact) == Millis{585'000});
    CHECK(std::get<agent::ContactLost>(story.only<SendMark>().mark).limit == Millis{600'000});
    story.hears(BridgeTimerFired{BridgeTimer::contact});
    CHECK_THAT(story.only<TellBridge>().text, Catch::StartsWith("no answer for 10 min, so"));
  }
  WHEN("a minute passes without contact") {
    story.hears(BridgeUnanswered{BridgeAsk::state, "nothing listens there"});
    story.hears(BridgeTimerFired{BridgeTimer::contact});
    CHECK(story.only<TellBridge>().text ==
          "no answer for 1 min, so its part of the job (hosts-x.1-abcdef) is given up here: "
          "nothing listens there");
    CHECK(story.only<FinishBridge>().code == 69);
  }
  WHEN("the daemon answers again") {
    story.answered(BridgeAsk::state, 200, kRuns);
    CHECK(story.delay(BridgeTimer::contact) == Millis{60'000});
  }
  WHEN("it answered again, and later the contact is lost without a word") {
    story.hears(BridgeUnanswered{BridgeAsk::state, "nothing listens there"});
    story.answered(BridgeAsk::state, 200, kRuns);
    story.hears(BridgeTimerFired{BridgeTimer::contact});
    THEN("the reason of the former loss isn't told for this one") {
      CHECK(story.only<TellBridge>().text ==
            "no answer for 1 min, so its part of the job (hosts-x.1-abcdef) is given up here");
    }
  }
}

SCENARIO("streams that stand still behind the job's end are opened anew", "[ctl][bridge]") {
  Story story;
  story.running();
  story.answered(BridgeAsk::state, 200, kOver);
  CHECK(story.all<OpenStream>().empty());
  story.hears(BridgeCopied{false, 5});
  story.answered(BridgeAsk::state, 200, kOver);
  CHECK(story.only<CloseStream>().is_err);
  CHECK(story.only<OpenStream>().is_err);
}

SCENARIO("signals become requests, and wait for the job's id", "[ctl][bridge]") {
  Story story;
  story.prepared().ordered(agent::Go{}).ordered(agent::PassSignal{SIGINT});
  CHECK(story.actions.empty());
  story.answered(BridgeAsk::submit, 201, R"({"id": "y"})");
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGINT\"}\n");
  story.ordered(agent::PassSignal{SIGTERM});
  CHECK(story.only<AskDaemon>().target == "/v1/nodes/b/v1/jobs/y/stop");
}

SCENARIO("a Ctrl-C while the daemon was restarted was lost", "[ctl][bridge]") {
  Story story;
  story.running().ordered(agent::PassSignal{SIGINT});
  CHECK(story.asks(BridgeAsk::signal));
  story.hears(BridgeUnanswered{BridgeAsk::signal, "nothing listens there"});
  CHECK(story.only<TellBridge>().text ==
        "the signal is not passed on yet: nothing listens there; it is tried again");
  CHECK(story.delay(BridgeTimer::signal));
  story.ordered(agent::PassSignal{SIGUSR1});  // behind the first
  CHECK(story.all<AskDaemon>().empty());
  story.hears(BridgeTimerFired{BridgeTimer::signal});
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGINT\"}\n");
  story.answered(BridgeAsk::signal, 502, R"({"error": "b: connection refused"})");
  CHECK(story.all<TellBridge>().empty());  // it was said
  story.hears(BridgeTimerFired{BridgeTimer::signal});
  story.answered(BridgeAsk::signal, 202, "{}");
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGUSR1\"}\n");
  story.answered(BridgeAsk::signal, 504, R"({"error": "no answer"})");  // it may be there
  CHECK(story.only<TellBridge>().text.starts_with("the signal was not passed on: "));
  story.hears(BridgeTimerFired{BridgeTimer::signal});
  CHECK(story.all<AskDaemon>().empty());
}

SCENARIO("two presses of Ctrl-C while the daemon was away left no time for a checkpoint",
         "[ctl][bridge]") {
  Story story;
  story.running().ordered(agent::PassSignal{SIGINT});
  story.hears(BridgeUnanswered{BridgeAsk::signal, "nothing listens there"});
  story.ordered(agent::PassSignal{SIGINT}).ordered(agent::PassSignal{SIGUSR1});
  story.hears(BridgeTimerFired{BridgeTimer::signal});
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGINT\"}\n");
  story.answered(BridgeAsk::signal, 202, "{}");
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGUSR1\"}\n");
  story.answered(BridgeAsk::signal, 202, "{}");
  story.ordered(agent::PassSignal{SIGINT});  // it was heard: this one is a hurry
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGINT\"}\n");
}

SCENARIO("two presses of Ctrl-C at a node that was silent for 3 s left no time for a checkpoint",
         "[ctl][bridge]") {
  Story story;
  story.running().ordered(agent::PassSignal{SIGINT});
  story.ordered(agent::PassSignal{SIGUSR1}).ordered(agent::PassSignal{SIGINT});
  story.answered(BridgeAsk::signal, 504, R"({"error": "b: silent", "code": "no_contact"})");
  story.hears(BridgeTimerFired{BridgeTimer::signal});
  story.answered(BridgeAsk::signal, 202, "{}");
  CHECK(story.only<AskDaemon>().body == "{\"signal\":\"SIGUSR1\"}\n");
  story.answered(BridgeAsk::signal, 202, "{}");
  CHECK(story.all<AskDaemon>().empty());
}

SCENARIO("a signal that a node said no to was tried again every half second, and a slow one twice",
         "[ctl][bridge]") {
  const auto tried_again_after = [](unsigned status, const std::string& body) {
    Story story;
    story.running().ordered(agent::PassSignal{SIGINT});
    story.answered(BridgeAsk::signal, status, body);
    const auto told = story.only<TellBridge>().text;
    CHECK(told.starts_with("the signal "));
    return !story.all<ArmBridgeTimer>().empty();
  };
  CHECK(tried_again_after(502, R"({"error": "connection refused", "code": "no_daemon"})"));
  CHECK(tried_again_after(503, R"({"error": "starting", "code": "busy"})"));
  CHECK(tried_again_after(504, R"({"error": "b took the connection", "code": "no_contact"})"));
  CHECK(tried_again_after(429, R"({"error": "too many requests"})"));
  CHECK_FALSE(
      tried_again_after(502, R"({"error": "another secret", "code": "authentication_failed"})"));
  CHECK_FALSE(tried_again_after(503, R"({"error": "make a secret", "code": "no_secret"})"));
  CHECK_FALSE(
      tried_again_after(503, R"({"error": "not done within 30 s, and still in progress"})"));
  CHECK_FALSE(tried_again_after(504, R"({"error": "no answer", "code": "no_answer"})"));
}

SCENARIO("the end of the life line stops the job, however often that has to be asked",
         "[ctl][bridge]") {
  Story story;
  story.running().hears(BridgeLineClosed{});
  CHECK(story.asks(BridgeAsk::stop));
  CHECK(story.delay(BridgeTimer::end));
  story.hears(BridgeUnanswered{BridgeAsk::stop, "gone"});
  CHECK(story.delay(BridgeTimer::stop));
  story.hears(BridgeTimerFired{BridgeTimer::stop});
  CHECK(story.asks(BridgeAsk::stop));
  story.answered(BridgeAsk::stop, 202, "{}");
  CHECK(story.asks(BridgeAsk::state));
  story.hears(BridgeOutputGone{});
  CHECK(story.all<CloseStream>().size() == 2);
  story.answered(BridgeAsk::state, 200, kOver);
  CHECK(story.only<FinishBridge>().code == 0);
}

SCENARIO("the life line ends while the submission is on its way", "[ctl][bridge]") {
  Story story;
  story.prepared().ordered(agent::Go{}).hears(BridgeLineClosed{});
  CHECK(story.actions.empty());
  story.answered(BridgeAsk::submit, 201, R"({"id": "y"})");
  CHECK(story.asks(BridgeAsk::stop));
}

SCENARIO("a bridge that isn't told to go leaves nothing", "[ctl][bridge]") {
  Story story;
  story.prepared().hears(BridgeLineClosed{});
  CHECK(story.only<FinishBridge>().code == 69);
  CHECK(story.all<AskDaemon>().empty());
}

SCENARIO("a detached job is started without its output, and left", "[ctl][bridge]") {
  auto detached = wish();
  detached.detaches = true;
  Story story{detached};
  story.running();
  CHECK(story.all<OpenStream>().empty());
  story.ordered(agent::Leave{});
  CHECK(story.only<FinishBridge>().code == 0);
  CHECK(story.all<AskDaemon>().empty());
}

TEST_CASE("a detached job that couldn't start ended after ten seconds, without a word", "[ctl][bridge]") {
  auto detached = wish();
  detached.detaches = true;
  Story story{detached};
  story.running();
  const auto armed = story.all<ArmBridgeTimer>();
  CHECK(std::ranges::any_of(armed, [](const ArmBridgeTimer& one) {
    return one.timer == BridgeTimer::state && one.delay < std::chrono::seconds{1};
  }));
  story.answered(BridgeAsk::state, 200, R"({"id": "x", "state": "failed", "exit_code": 127})");
  const auto told = story.all<TellBridge>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].text.find(" failed: exit code 127; what it wrote: acc-ctl logs ") != std::string::npos);
}

TEST_CASE("a detached job whose part couldn't start said its exit code alone", "[ctl][bridge]") {
  auto detached = wish();
  detached.detaches = true;
  Story story{detached};
  story.running();
  WHEN("its report has the reason") {
    story.answered(BridgeAsk::state, 200, R"({"id": "x", "state": "failed", "exit_code": 71,
      "report": {"start_failure": "cannot start worker 5: Resource\ntemporarily unavailable", "reason": null}})");
    const auto told = story.only<TellBridge>().text;
    CHECK(told.find(" failed: exit code 71: cannot start worker 5: Resource") != std::string::npos);
    CHECK(told.find('\n') == std::string::npos);
  }
  WHEN("its report is none, as of another user's making") {
    story.answered(
        BridgeAsk::state, 200,
        R"({"id": "x", "state": "failed", "exit_code": 71, "report": ["start_failure"]})");
    CHECK(story.only<TellBridge>().text.find(" failed: exit code 71; ") != std::string::npos);
  }
}

SCENARIO("an attached bridge follows a job that is there, and stops nothing", "[ctl][bridge]") {
  auto attached = wish();
  attached.job = "y";
  attached.skips_old = true;
  Story story{attached};
  story.ordered(agent::Prepare{"token"});
  CHECK(story.only<AskDaemon>().target == "/v1/nodes/b/v1/jobs/y");
  story.answered(BridgeAsk::state, 200, kRuns);
  CHECK(std::get<agent::Prepared>(story.only<SendMark>().mark).version == version());
  story.ordered(agent::Go{});
  REQUIRE(story.all<OpenStream>().size() == 2);
  CHECK(story.all<OpenStream>()[0].target.ends_with("&from=end"));
  // The end, as the daemon told it, and what came after it.
  story.hears(BridgeStreamBegun{false, 42}).hears(BridgeCopied{false, 8});
  story.hears(BridgeStreamEnded{false, 200, false, ""});
  story.hears(BridgeTimerFired{BridgeTimer::out});
  CHECK(story.only<OpenStream>().target.ends_with("&from=50"));
  story.hears(BridgeLineClosed{});
  CHECK(story.only<FinishBridge>().code == 69);
  CHECK(story.all<AskDaemon>().empty());
}

SCENARIO("a node whose daemon was restarted as acc-ctl attach began was missing for the whole job",
         "[ctl][bridge]") {
  auto attached = wish();
  attached.job = "y";
  attached.skips_old = true;
  const std::string unreachable = R"({"error": "refused", "code": "node_unreachable"})";
  const auto is_followed_from_the_beginning = [&](Story& story) {
    CHECK(std::holds_alternative<agent::Prepared>(story.only<SendMark>().mark));
    story.ordered(agent::Go{});
    REQUIRE(story.all<OpenStream>().size() == 2);
    CHECK(story.all<OpenStream>()[0].target.ends_with("&from=0"));
    // Asked again soon, and copied when it answers.
    story.hears(BridgeStreamEnded{false, 502, true, unreachable});
    CHECK(story.delay(BridgeTimer::out) == Millis{50});
    CHECK(story.delay(BridgeTimer::state) == Millis{500});
    story.answered(BridgeAsk::state, 502, unreachable);
    CHECK(story.delay(BridgeTimer::state) == Millis{500});
    CHECK(story.all<FinishBridge>().empty());
    story.hears(BridgeTimerFired{BridgeTimer::out});
    CHECK(story.only<OpenStream>().target.ends_with("&from=0"));
  };
  WHEN("it was known to be away") {
    attached.is_away = true;
    Story story{attached};
    story.ordered(agent::Prepare{"token"});
    CHECK(story.all<AskDaemon>().empty());
    is_followed_from_the_beginning(story);
  }
  WHEN("it turns out now") {
    Story story{attached};
    story.ordered(agent::Prepare{"token"}).answered(BridgeAsk::state, 502, unreachable);
    is_followed_from_the_beginning(story);
  }
  WHEN("our own daemon is away") {
    Story story{attached};
    story.ordered(agent::Prepare{"token"}).hears(BridgeUnanswered{BridgeAsk::state, "it is gone"});
    is_followed_from_the_beginning(story);
  }
  WHEN("it knows no such job") {
    Story story{attached};
    story.ordered(agent::Prepare{"token"})
        .answered(BridgeAsk::state, 404, R"({"error": "no job"})");
    CHECK(story.only<FinishBridge>().code == 1);
  }
}

SCENARIO("two quick Ctrl-C of acc-ctl attach left a job that was said to have been asked to stop",
         "[ctl][bridge]") {
  auto attached = wish();
  attached.job = "y";
  Story story{attached};
  story.ordered(agent::Prepare{"token"}).answered(BridgeAsk::state, 200, kRuns);
  story.ordered(agent::Go{}).ordered(agent::PassSignal{SIGTERM});
  CHECK(story.asks(BridgeAsk::stop));
  WHEN("it leaves before the daemon has answered") {
    story.hears(BridgeLineClosed{});
    CHECK(story.all<FinishBridge>().empty());
    CHECK(story.delay(BridgeTimer::end) == Millis{4'000});
    THEN("the answer ends the bridge") {
      story.answered(BridgeAsk::stop, 202, "{}");
      CHECK(story.only<FinishBridge>().code == 69);
    }
    THEN("a stop that isn't heard is asked for again, and then told") {
      story.hears(BridgeUnanswered{BridgeAsk::stop, "it is gone"});
      story.hears(BridgeTimerFired{BridgeTimer::stop});
      CHECK(story.asks(BridgeAsk::stop));
      story.hears(BridgeTimerFired{BridgeTimer::end});
      CHECK(story.only<TellBridge>().text == "its job y could not be stopped: it is gone");
    }
  }
  WHEN("it leaves afterwards") {
    story.answered(BridgeAsk::stop, 202, "{}").hears(BridgeLineClosed{});
    THEN("the bridge ends") { CHECK(story.only<FinishBridge>().code == 69); }
  }
}

}  // namespace acc::ctl
