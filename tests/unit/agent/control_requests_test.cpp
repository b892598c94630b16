#include "agent/control_requests.hpp"

#include "agent/user_messages.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

/// Requests to an agent, and what they led to.
struct AskedAgent {
  boost::asio::io_context io{1};
  GroupState group;
  std::vector<std::string> said;
  UserMessages messages{[this](std::string_view line) { said.emplace_back(line); }, OutputPlan{},
                        false};
  std::vector<Event> events;
  std::string restart_reason;
  std::function<void(std::vector<control::NodeView>)> table;
  StackCollection::Collected stacks;
  rendezvous::RendezvousClient::RestartAnswer restart_answer;
  bool keeps_restart_answer = true;
  ControlRequests requests{io, group, messages, hooks()};
  std::vector<std::string> replies;

  AskedAgent() {
    group.phase = Phase::running;
    group.alive = 1;
  }
  ControlRequests::Hooks hooks() {
    return {[this](const Event& event) {
              events.push_back(event);
              const bool is_restart = std::holds_alternative<RestartAsked>(event);
              if (is_restart && group.coordinated && keeps_restart_answer)
                restart_answer = requests.take_restart_answer();
            },
            [](const control::Status&) {
              control::JobView view;
              view.name = "train";
              return view;
            },
            [this](auto answer) { table = std::move(answer); },
            [](const control::Output& wanted) {
              return control::OutputView{Round{3}, wanted.from, 9, "text"};
            },
            [this](const evidence::Question&, auto done) { stacks = std::move(done); },
            [this](const std::string& reason) { restart_reason = reason; },
            [this](int signo) {
              events.push_back(SignalArrived{signo, clock_now()});
            }};
  }
  nlohmann::json ask(const control::Request& request) {
    requests.take(request, 7, [this](std::string reply) { replies.push_back(std::move(reply)); });
    return replies.empty() ? nlohmann::json{} : nlohmann::json::parse(replies.back());
  }
};

const nlohmann::json kDone = {{"ok", true}};

}  // namespace

TEST_CASE("a stop over the control socket is done at once and told to the user",
          "[agent][control]") {
  AskedAgent agent;
  CHECK(agent.ask(control::Stop{Millis{250}}) == kDone);
  REQUIRE(agent.events.size() == 1);
  CHECK(std::get<StopAsked>(agent.events[0]).grace == Millis{250});
  REQUIRE(agent.said.size() == 1);
  CHECK(agent.said[0].find("stop asked over the control socket by uid 7") != std::string::npos);
}

TEST_CASE("a signal for workers that don't run is refused, one that ends the job is not",
          "[agent][control]") {
  AskedAgent agent;
  agent.group.phase = Phase::backing_off;
  CHECK(agent.ask(control::Signal{SIGUSR1})["error"] == "no worker runs now");
  CHECK(agent.events.empty());
  CHECK(agent.ask(control::Signal{SIGTERM}) == kDone);
  SECTION("on several nodes it goes to the workers of all") {
    agent.group.coordinated = true;
    CHECK(agent.ask(control::Signal{SIGUSR1}) == kDone);
    CHECK(agent.events.size() == 2);
  }
}

TEST_CASE("a restart on one node names its reason", "[agent][control]") {
  AskedAgent agent;
  CHECK(agent.ask(control::Restart{}) == kDone);
  CHECK(agent.events.size() == 1);
  CHECK(agent.restart_reason == "asked for over the control socket");
  agent.group.stop_signal = SIGTERM;
  CHECK(agent.ask(control::Restart{})["error"] == "the job is being stopped");
  CHECK(agent.events.size() == 1);
}

TEST_CASE("a restart on several nodes is answered by their coordinator", "[agent][control]") {
  AskedAgent agent;
  agent.group.coordinated = true;
  CHECK(agent.ask(control::Restart{})["code"] == "conflict");
  agent.replies.clear();
  agent.group.is_connected = true;
  CHECK(agent.ask(control::Restart{}).is_null());
  REQUIRE(agent.restart_answer);
  SECTION("that agrees") {
    agent.restart_answer("");
    CHECK(agent.ask(control::Status{}).contains("job"));
    CHECK(nlohmann::json::parse(agent.replies[0]) == kDone);
  }
  SECTION("that refuses") {
    agent.restart_answer("the job is over");
    CHECK(nlohmann::json::parse(agent.replies.at(0))["error"] == "the job is over");
  }
  SECTION("that is silent: then it is refused, once") {
    agent.io.run_for(std::chrono::seconds{20});
    REQUIRE(agent.replies.size() == 1);
    CHECK(agent.replies[0].find("gives no answer") != std::string::npos);
    agent.restart_answer("");
    CHECK(agent.replies.size() == 1);
  }
}

TEST_CASE("the status of one node is given at once, that of several with the nodes of the round",
          "[agent][control]") {
  AskedAgent agent;
  CHECK(agent.ask(control::Status{})["job"] == "train");
  CHECK_FALSE(agent.table);
  agent.replies.clear();
  agent.group.coordinated = true;
  agent.group.orders.round = Round{0};
  CHECK(agent.ask(control::Status{}).is_null());
  REQUIRE(agent.table);
  SECTION("from the coordinator") {
    agent.table({{"b", "host-b", Rank{2}, 2}});
    CHECK(agent.replies.at(0).find("host-b") != std::string::npos);
  }
  SECTION("or without them if it is silent") {
    agent.io.run_for(std::chrono::seconds{20});
    CHECK(nlohmann::json::parse(agent.replies.at(0))["job"] == "train");
    agent.table({{"b", "host-b", Rank{2}, 2}});
    CHECK(agent.replies.size() == 1);
  }
}

TEST_CASE("stacks are only collected of workers that run", "[agent][control]") {
  AskedAgent agent;
  agent.group.phase = Phase::awaiting;
  CHECK(agent.ask(control::Stacks{})["error"] == "no worker runs now");
  agent.group.phase = Phase::running;
  agent.replies.clear();
  CHECK(agent.ask(control::Stacks{}).is_null());
  REQUIRE(agent.stacks);
  agent.stacks(evidence::Answer{});
  CHECK(nlohmann::json::parse(agent.replies.at(0))["ok"] == true);
}

TEST_CASE("a finished job refuses each request", "[agent][control]") {
  AskedAgent agent;
  agent.requests.close();
  CHECK(agent.ask(control::Status{})["error"] == "the job is over");
  CHECK(agent.ask(control::Stop{})["error"] == "the job is over");
  CHECK(agent.events.empty());
}
