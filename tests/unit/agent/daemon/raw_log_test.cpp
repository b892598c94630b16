#include "agent/daemon/http_reply_parser.hpp"

#include "api_fixture.hpp"

#include <fstream>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

std::string unchunked(const std::string& reply, bool& is_whole) {
  ReplyParser parser{false};
  std::string body;
  std::string held = reply;
  for (auto step = ReplyParser::Step::has_head; step == ReplyParser::Step::has_head;) {
    std::size_t consumed = 0;
    step = parser.feed(held, consumed, body);
    held.erase(0, consumed);
  }
  is_whole = parser.end();
  return body;
}

}  // namespace

TEST_CASE("a raw log is the bytes of one stream from an offset on", "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  server.jobs().write("a-1", false, std::string{"one\n\0\xff\r", 7} + "two\n");
  server.jobs().write("a-1", true, "bad\n");
  bool is_whole = false;
  CHECK(unchunked(server.ask("GET /v1/jobs/a-1/logs?stream=stdout&format=raw&from=2"), is_whole) ==
        std::string{"e\n\0\xff\r", 5} + "two\n");
  CHECK(is_whole);
  CHECK(unchunked(server.ask("GET /v1/jobs/a-1/logs?stream=stderr&format=raw"), is_whole) ==
        "bad\n");
  CHECK_THAT(server.ask("GET /v1/jobs/a-1/logs?stream=stderr&format=raw&from=4"),
             Contains("Content-Length: 0"));
  CHECK_THAT(server.ask("GET /v1/jobs/a-1/logs?stream=stderr&format=raw&from=5"),
             Contains(" 416 ") && Contains("there are 4 bytes"));
  for (const auto* wrong :
       {"format=raw", "stream=stdout&from=1", "stream=stdout&format=text",
        "stream=stdout&format=raw&from=-1", "stream=stdout&format=raw&from=x"}) {
    INFO(wrong);
    CHECK_THAT(server.ask(std::string{"GET /v1/jobs/a-1/logs?"} + wrong), Contains(" 400 "));
  }
}

TEST_CASE("a job's events are read as a raw stream, and only so", "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  CHECK_THAT(server.ask("GET /v1/jobs/a-1/logs?stream=events&format=raw"),
             Contains(" 200 ") && Contains("Content-Length: 0"));
  std::ofstream{server.jobs().path("a-1", false) + ".events"} << "{\"seq\": 0}\n{\"seq\": 1}\n";
  bool is_whole = false;
  CHECK(unchunked(server.ask("GET /v1/jobs/a-1/logs?stream=events&format=raw&from=10"), is_whole) ==
        "\n{\"seq\": 1}\n");
  for (const auto* wrong : {"stream=events", "stream=events&follow=1",
                            "stream=events&format=raw&rank=0"}) {
    INFO(wrong);
    CHECK_THAT(server.ask(std::string{"GET /v1/jobs/a-1/logs?"} + wrong), Contains(" 400 "));
  }
}

TEST_CASE("a raw log that is followed grows with the file and ends whole with the job",
          "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  auto line = server.client();
  REQUIRE(
      line.send("GET /v1/jobs/a-1/logs?stream=stdout&format=raw&follow=1 HTTP/1.1\r\n"
                "Connection: close\r\n\r\n"));
  std::string reply = line.read_to("\r\n\r\n");
  CHECK_THAT(reply, Contains("application/octet-stream"));
  server.jobs().write("a-1", false, "before ");  // the file is found, though nothing tells of it
  reply += line.read_to("before ");
  server.jobs().write("a-1", false, "no end of line");
  reply += line.read_to("line");
  server.jobs().write("a-1", false, std::string(200'000, 'x') + "!");
  server.on_loop([&] { server.jobs().end("a-1", 0); });
  reply += line.read_all();
  bool is_whole = false;
  CHECK(unchunked(reply, is_whole) == "before no end of line" + std::string(200'000, 'x') + "!");
  CHECK(is_whole);
  CHECK(server.comes_true([&] { return server.growth().watched() == 0; }));
}

TEST_CASE("a reader from the end learns where that was, and misses nothing of what comes then",
          "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  server.jobs().write("a-1", false, "before\n");
  auto raw = server.client();
  REQUIRE(
      raw.send("GET /v1/jobs/a-1/logs?stream=stdout&format=raw&follow=1&from=end HTTP/1.1\r\n"
               "Connection: close\r\n\r\n"));
  std::string reply = raw.read_to("\r\n\r\n");
  CHECK_THAT(reply, Contains("X-Acc-From: 7\r\n"));
  auto events = server.client();
  REQUIRE(events.send("GET /v1/jobs/a-1/logs?follow=1&from=end HTTP/1.0\r\n\r\n"));
  CHECK_THAT(events.read_to("\n\n"), Contains("text/event-stream"));
  // One that is cut off here goes on from the end that it was told.
  auto again = server.client();
  REQUIRE(
      again.send("GET /v1/jobs/a-1/logs?follow=1&from=end HTTP/1.0\r\nLast-Event-ID: 0,0\r\n\r\n"));
  CHECK_THAT(again.read_to("before"), Contains("event: stdout"));
  server.jobs().write("a-1", false, "after\n");
  server.jobs().write("a-1", true,
                      "first\n");  // a file that wasn't there is read from its beginning
  server.on_loop([&] { server.jobs().end("a-1", 0); });
  reply += raw.read_all();
  bool is_whole = false;
  CHECK(unchunked(reply, is_whole) == "after\n");
  CHECK(is_whole);
  const auto rest = events.read_all();
  CHECK_THAT(rest, Contains("after") && Contains("first") && !Contains("before"));
  CHECK_THAT(server.ask("GET /v1/jobs/a-1/logs?stream=stdout&format=raw&from=end"),
             Contains("X-Acc-From: 13\r\n") && Contains("Content-Length: 0"));
  for (const auto* wrong : {"from=end", "stream=stdout&from=end", "follow=1&from=3"}) {
    INFO(wrong);
    CHECK_THAT(server.ask(std::string{"GET /v1/jobs/a-1/logs?"} + wrong), Contains(" 400 "));
  }
}

TEST_CASE("a raw log that a stopping daemon breaks off isn't whole", "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  server.jobs().write("a-1", false, "text");
  auto line = server.client();
  REQUIRE(line.send("GET /v1/jobs/a-1/logs?stream=stdout&format=raw&follow=1 HTTP/1.1\r\n\r\n"));
  std::string reply = line.read_to("text");
  server.on_loop([&] { server.server().stop([] {}); });
  reply += line.read_all();
  bool is_whole = true;
  CHECK(unchunked(reply.substr(0, reply.rfind("(end)")), is_whole) == "text");
  CHECK_FALSE(is_whole);
}
