#include "launcher/ctl/event_follower.hpp"

#include "agent/fanout/orders.hpp"
#include "tests/unit/launcher/ctl/played_service.hpp"

#include <catch2/catch.hpp>

namespace acc::ctl {
namespace {

const std::string kToken = "token";

std::string event_mark(const std::string& line) {
  return agent::encode(agent::HostEvent{line}, kToken);
}

BridgeWish wish_for_events() {
  BridgeWish made;
  made.name = made.node = "b";
  return made;
}

}  // namespace

TEST_CASE("lines of events become marks when they are complete", "[ctl][bridge]") {
  std::string held = "{\"event\":\"a\"}\n{\"eve";
  CHECK(take_event_marks(held, kToken) == event_mark(R"({"event":"a"})"));
  held += "nt\":\"b\"}\n";
  CHECK(take_event_marks(held, kToken) == event_mark(R"({"event":"b"})"));
  CHECK(held.empty());
}

TEST_CASE("what is of the events' file is no event of the job, and a mark has room for the rest",
          "[ctl][bridge]") {
  std::string held = "{\"event\":\"file_continued\",\"n\":2}\n" +
                     std::string(agent::kMaxEventMark, 'x') + "\n{\"event\":\"end\"}\n";
  CHECK(take_event_marks(held, kToken) == event_mark(R"({"event":"end"})"));
}

TEST_CASE("the start of a job with a long command line was no event", "[ctl][bridge]") {
  std::string held = R"({"event":"job_started","command":["train.py",")" +
                     std::string(agent::kMaxEventMark, 'x') + "\"],\"workers\":1}\n";
  const auto marks = take_event_marks(held, kToken);
  CHECK(marks.size() < agent::kMaxEventMark);
  CHECK_THAT(marks, Catch::Contains(R"("event":"job_started","command":["train.py","xxx)") &&
                        Catch::EndsWith("xxx…\"],\"workers\":1}\n"));
}

SCENARIO("events are followed from where they broke off", "[ctl][bridge]") {
  PlayedService service;
  EventFollower follower;
  const auto wish = wish_for_events();
  Instant now{};
  const auto follow = [&](const std::string& job) {
    follower.follow(service.path(), wish, job, false, now);
  };
  follow("j1");
  CHECK_FALSE(follower.is_open());  // nobody wants them
  follower.want();
  follow("");
  CHECK_FALSE(follower.is_open());  // there is no job yet
  follow("j1");
  REQUIRE(follower.is_open());
  service.accept();
  CHECK(follower.read(kToken, now).empty());  // the request is sent
  CHECK(service.request().starts_with(
      "GET /v1/nodes/b/v1/jobs/j1/logs?stream=events&format=raw&follow=1&from=0 "));
  service.begins_stream(0);
  service.streams("{\"event\":\"a\"}\n{\"eve");
  CHECK(follower.read(kToken, now) == event_mark(R"({"event":"a"})"));

  service.closes();
  CHECK(follower.read(kToken, now).empty());
  CHECK_FALSE(follower.is_open());
  REQUIRE(follower.tries_again());
  follow("j1");
  CHECK_FALSE(follower.is_open());  // not at once
  now = *follower.tries_again();
  follow("j1");
  REQUIRE(follower.is_open());
  service.accept();
  CHECK(follower.read(kToken, now).empty());
  CHECK_THAT(service.request(), Catch::Contains("&from=19 "));
  WHEN("they go on there") {
    service.begins_stream(19);
    service.streams("nt\":\"b\"}\n");
    CHECK(follower.read(kToken, now) == event_mark(R"({"event":"b"})"));
  }
  WHEN("the bytes between are kept no longer") {
    service.begins_stream(40);
    service.streams("{\"event\":\"c\"}\n");
    CHECK(follower.read(kToken, now) == event_mark(R"({"event":"c"})"));
  }
}

}  // namespace acc::ctl
