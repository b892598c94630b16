#include "rendezvous/link.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace acc;
using namespace acc::rendezvous;

namespace {

Frame notice(const std::string& text) { return {Epoch{}, Notice{text}}; }

struct Ear {
  std::vector<std::string> heard;
  std::string lost;
  Link::Handlers handlers() {
    return {[this](const Frame& frame) { heard.push_back(std::get<Notice>(frame.message).text); },
            [this](const LinkLoss& loss) { lost = loss.why; }};
  }
};

}  // namespace

SCENARIO("an agent and the coordinator of its own process", "[rendezvous][link]") {
  boost::asio::io_context io{1};
  auto [agent, coordinator] = link_inside(io);
  Ear ear;
  coordinator->send(notice("one"));
  coordinator->send(notice("two"));

  WHEN("one end is opened after the other has spoken") {
    agent->start(ear.handlers());
    THEN("nothing is said from within the call") { CHECK(ear.heard.empty()); }
    THEN("it hears all of it, in order, from the loop") {
      io.run();
      CHECK(ear.heard == std::vector<std::string>{"one", "two"});
    }
  }
  WHEN("one end closes") {
    agent->start(ear.handlers());
    coordinator->close();
    io.run();
    THEN("the other hears what was said before, and then the end") {
      CHECK(ear.heard.size() == 2);
      CHECK(ear.lost == "it ended");
    }
  }
  WHEN("an end has closed itself") {
    agent->start(ear.handlers());
    agent->close();
    io.run();
    THEN("it hears nothing more") {
      CHECK(ear.heard.empty());
      CHECK(ear.lost.empty());
    }
  }
  WHEN("one end is dropped") {
    agent->start(ear.handlers());
    coordinator.reset();
    io.run();
    THEN("that is an end, too") { CHECK(ear.lost == "it ended"); }
  }
}
