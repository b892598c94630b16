#include "agent/daemon/http_reply_parser.hpp"
#include "agent/output/event_file_line.hpp"

#include <filesystem>
#include <fstream>

#include "api_fixture.hpp"

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
  for (const auto* wrong :
       {"stream=events", "stream=events&follow=1", "stream=events&format=raw&rank=0"}) {
    INFO(wrong);
    CHECK_THAT(server.ask(std::string{"GET /v1/jobs/a-1/logs?"} + wrong), Contains(" 400 "));
  }
}

namespace {

/// The file of a job's events, rotated as acc-launch does.
struct RotatingEvents {
  std::string path;
  std::string all{};  ///< each byte that was ever written
  std::uint64_t begin = 0;

  void write(const std::string& line) {
    std::ofstream{path, std::ios::app} << line;
    all += line;
  }
  void rotate() {
    begin = all.size();
    const auto line = acc::agent::event_file_line(begin);
    std::ofstream{path + ".next"} << line;
    std::filesystem::rename(path, path + ".1");
    std::filesystem::rename(path + ".next", path);
    all += line;
  }
};

}  // namespace

TEST_CASE("a reader of events by offset reads on over a rotation, without a line lost or doubled",
          "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  RotatingEvents events{server.jobs().path("a-1", false) + ".events"};
  const auto read_from = [&](std::uint64_t from) {
    return server.ask("GET /v1/jobs/a-1/logs?stream=events&format=raw&from=" +
                      std::to_string(from));
  };
  const auto body_from = [&](std::uint64_t from) {
    bool is_whole = false;
    return unchunked(read_from(from), is_whole);
  };
  events.write("{\"seq\": 0}\n{\"seq\": 1}\n");
  const auto first = events.all.size();
  events.rotate();
  events.write("{\"seq\": 2}\n");
  CHECK(body_from(0) == events.all);
  CHECK(body_from(5) == events.all.substr(5));
  CHECK(body_from(first) == events.all.substr(first));
  CHECK(body_from(events.all.size() - 3) == "2}\n");
  CHECK_THAT(server.ask("GET /v1/jobs/a-1/logs?stream=events&format=raw&from=99999"),
             Contains(" 416 ") && Contains(std::to_string(events.all.size()) + " bytes"));
  WHEN("the oldest are kept no longer") {
    events.rotate();
    events.write("{\"seq\": 3}\n");
    bool is_whole = false;
    const auto reply = read_from(0);
    THEN("the reply says where it begins") {
      CHECK_THAT(reply, Contains("X-Acc-From: " + std::to_string(first) + "\r\n"));
      CHECK(unchunked(reply, is_whole) == events.all.substr(first));
    }
  }
  WHEN("it follows") {
    auto line = server.client();
    REQUIRE(
        line.send("GET /v1/jobs/a-1/logs?stream=events&format=raw&follow=1&from=3 HTTP/1.1\r\n"
                  "Connection: close\r\n\r\n"));
    std::string reply = line.read_to("2}\n");
    events.write("{\"seq\": 3}\n");
    events.rotate();
    events.write("{\"seq\": 4}\n");
    reply += line.read_to("4}\n");
    events.rotate();
    events.write("{\"seq\": 5}\n");
    server.on_loop([&] { server.jobs().end("a-1", 0); });
    reply += line.read_all();
    bool is_whole = false;
    THEN("it gets each byte once") {
      CHECK(unchunked(reply, is_whole) == events.all.substr(3));
      CHECK(is_whole);
    }
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

TEST_CASE("a reader of a rank's log goes on with the next attempt's when that begins",
          "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  server.jobs().write_rank("a-1", "run_a", 0, "first");
  auto raw = server.client();
  REQUIRE(
      raw.send("GET /v1/jobs/a-1/logs?stream=stdout&rank=0&format=raw&follow=1 HTTP/1.0\r\n\r\n"));
  CHECK_THAT(raw.read_to("first"), Contains(" 200 "));
  auto events = server.client();
  REQUIRE(events.send("GET /v1/jobs/a-1/logs?stream=stdout&rank=0&follow=1 HTTP/1.0\r\n\r\n"));
  CHECK_THAT(events.read_to("first"), Contains(" 200 "));
  server.jobs().write_rank("a-1", "run_a", 1, "second");
  CHECK_THAT(raw.read_to("second"), !Contains("silence"));
  CHECK_THAT(events.read_to("second"), !Contains("silence"));
}

TEST_CASE("a raw log of a rank has each attempt of each run, however quickly they end",
          "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  auto raw = server.client();
  REQUIRE(
      raw.send("GET /v1/jobs/a-1/logs?stream=stdout&rank=0&format=raw&follow=1 HTTP/1.0\r\n\r\n"));
  CHECK_THAT(raw.read_to("\r\n\r\n"), Contains(" 200 "));
  server.on_loop([&] {
    for (const auto* run : {"run_a", "run_b", "run_c"}) {
      for (const int attempt : {0, 1, 3})
        server.jobs().write_rank("a-1", run, attempt, run + std::to_string(attempt) + " ");
      for (int attempt = 4; attempt < 1'500; ++attempt)  // without this rank
        server.jobs().make_attempt("a-1", run, attempt);
    }
    server.jobs().end("a-1", 1);
  });
  CHECK(raw.read_all() == "run_a0 run_a1 run_a3 run_b0 run_b1 run_b3 run_c0 run_c1 run_c3 (end)");
}

TEST_CASE("a log that can't be read ends broken off, and keeps the daemon from nothing",
          "[agent][http]") {
  ApiServer server;
  server.add_job("a-1", ::geteuid());
  server.jobs().write("a-1", false, "text");
  server.on_loop([&] { server.jobs().is_unreadable = true; });
  for (const auto* query : {"", "&follow=1", "&format=raw", "&format=raw&follow=1"}) {
    INFO(query);
    const auto reply = server.ask(std::string{"GET /v1/jobs/a-1/logs?stream=stdout"} + query);
    CHECK_THAT(reply, Contains(" 200 ") && Contains("(end)"));
    CHECK_THAT(reply, !Contains("\r\n0\r\n\r\n"));  // a whole body's last chunk
  }
}
