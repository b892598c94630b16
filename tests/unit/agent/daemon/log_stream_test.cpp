#include "agent/daemon/sse.hpp"

#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include "api_fixture.hpp"

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

/// A reader of server-sent events over HTTP/1.0, where no chunks are in between.
class EventReader {
 public:
  EventReader(const ApiServer& api, const std::string& target, const std::string& last_id = {})
      : line_{api.client()} {
    line_.send("GET " + target + " HTTP/1.0\r\n" +
               (last_id.empty() ? "" : "Last-Event-ID: " + last_id + "\r\n") + "\r\n");
    head = line_.read_to("\r\n\r\n");
  }
  /// False: the stream has ended.
  bool next() {
    const auto text = line_.read_to("\n\n");
    name = data = "";
    if (!text.ends_with("\n\n")) return false;
    for (const auto& field : split(text)) {
      if (field.starts_with("event: ")) name = field.substr(7);
      if (field.starts_with("id: ")) id = field.substr(4);
      if (field.starts_with("data: ")) data = field.substr(6);
    }
    return true;
  }
  /// All text of `stream` until `enough` bytes are there, or the end.
  std::string text(const std::string& stream, std::size_t enough) {
    while (texts[stream].size() < enough && next()) take();
    return texts[stream];
  }
  std::string to_end() {
    while (next()) {
      if (name == "end") return data;
      take();
    }
    return "(no end)";
  }
  void take() {
    if (name == "stdout" || name == "stderr")
      texts[name] += nlohmann::json::parse(data).get<std::string>();
  }

  std::string head, id, name, data;
  std::map<std::string, std::string> texts;

 private:
  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
      const auto end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }
  RawClient line_;
};

}  // namespace

TEST_CASE("the file so far is sent as it is, however large", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  CHECK_THAT(api.ask("GET /v1/jobs/t-1/logs"), StartsWith("HTTP/1.1 200"));  // nothing yet
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += "line " + std::to_string(i) + "\xff\r\n";
  api.jobs().write("t-1", false, text);
  api.jobs().write("t-1", true, "complaint\n");
  auto line = api.client();
  line.send("GET /v1/jobs/t-1/logs HTTP/1.0\r\n\r\n");
  CHECK_THAT(line.read_to("\r\n\r\n"), Contains("text/plain"));
  CHECK(line.read_all() == text + "(end)");
  CHECK_THAT(api.ask("GET /v1/jobs/t-1/logs?stream=stderr"), Contains("complaint"));
  CHECK_THAT(api.ask("HEAD /v1/jobs/t-1/logs"), !Contains("line 1"));
  // Kept alive behind a body of chunks.
  auto kept = api.client();
  kept.send("GET /v1/jobs/t-1/logs?stream=stderr HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
  CHECK_THAT(kept.read_to("0\r\n\r\n"), Contains("a\r\ncomplaint\n\r\n"));
  CHECK_THAT(kept.read_reply(), Contains("ok"));
}

TEST_CASE("a file that was last written before `since` is left out", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  api.jobs().write("t-1", false, "old\n");
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, api.jobs().path("t-1", false).c_str(), times, 0) == 0);
  CHECK_THAT(api.ask("GET /v1/jobs/t-1/logs?since=1000001"), !Contains("old"));
  CHECK_THAT(api.ask("GET /v1/jobs/t-1/logs?since=1000000"), Contains("old"));
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1&since=1000001"};
  REQUIRE(api.comes_true([&] { return api.growth().watched() > 0; }));
  api.jobs().write("t-1", false, "new\n");
  CHECK(events.text("stdout", 1) == "new\n");
}

TEST_CASE("output is followed as it grows, both streams, up to the job's end", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  api.jobs().write("t-1", false, "one\n");
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1"};
  CHECK_THAT(events.head, Contains("Content-Type: text/event-stream"));
  CHECK(events.text("stdout", 4) == "one\n");
  CHECK(events.id == "4,0");
  api.jobs().write("t-1", false, "two\nthr");
  api.jobs().write("t-1", true, "bad\r\n");
  CHECK(events.text("stdout", 8) == "one\ntwo\n");
  api.jobs().write("t-1", false, "ee\n");
  CHECK(events.text("stdout", 14) == "one\ntwo\nthree\n");
  CHECK(events.text("stderr", 5) == "bad\r\n");
  api.jobs().write("t-1", false, "no line end");
  api.on_loop([&] { api.jobs().end("t-1", 3); });
  CHECK_THAT(events.to_end(), Contains(R"("exit_code":3)") && Contains(R"("state":"failed")"));
  CHECK(events.texts["stdout"] == "one\ntwo\nthree\nno line end");
  CHECK(events.id == "25,5");
  CHECK_FALSE(events.next());
  CHECK(api.comes_true([&] { return api.growth().watched() == 0; }));
}

TEST_CASE("a line without an end is shown after a moment", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  api.jobs().write("t-1", false, "Password: ");
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1&stream=stdout"};
  CHECK(events.text("stdout", 1) == "Password: ");
}

TEST_CASE("a reader resumes where it was cut off, with no byte lost or twice", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  std::string out;
  std::string err;
  for (int i = 0; i < 40'000; ++i) {
    out += "out " + std::to_string(i) + " é\n";
    err += "err " + std::to_string(i) + "\n";
  }
  api.jobs().write("t-1", false, out);
  api.jobs().write("t-1", true, err);
  std::map<std::string, std::string> got;
  std::string last;
  for (int cut = 0; cut < 5; ++cut) {
    EventReader events{api, "/v1/jobs/t-1/logs?follow=1", last};
    for (int i = 0; i < 2 && events.next(); ++i) {
      events.take();
      last = events.id;
    }
    for (const auto& [stream, text] : events.texts) got[stream] += text;
  }
  api.on_loop([&] { api.jobs().end("t-1", 0); });
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1", last};
  CHECK_THAT(events.to_end(), Contains("succeeded"));
  CHECK(got["stdout"] + events.texts["stdout"] == out);
  CHECK(got["stderr"] + events.texts["stderr"] == err);
  EventReader again{api, "/v1/jobs/t-1/logs?follow=1", events.id};
  CHECK_THAT(again.to_end(), Contains("succeeded"));
  CHECK(again.texts.empty());
  CHECK_THAT(EventReader(api, "/v1/jobs/t-1/logs?follow=1", "x").head, StartsWith("HTTP/1.1 400"));
}

TEST_CASE("files that appear later, or are replaced, are followed", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1&stream=stdout"};
  api.jobs().write("t-1", false, "first\n");
  CHECK(events.text("stdout", 6) == "first\n");
  REQUIRE(api.comes_true([&] { return api.growth().watched() > 0; }));
  const auto path = api.jobs().path("t-1", false);
  std::filesystem::rename(path, path + ".1");
  api.jobs().write("t-1", false, "second\n");
  CHECK(events.text("stdout", 13) == "first\nsecond\n");
}

TEST_CASE("a reader whose next file is removed while it reads the one before still ends",
          "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  const std::string text(20'000'000, 'x');
  api.jobs().write("t-1", false, "first\n");
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1&stream=stdout"};
  CHECK(events.text("stdout", 6) == "first\n");
  const auto path = api.jobs().path("t-1", false);
  api.on_loop([&] {
    api.jobs().write("t-1", false, text);
    std::filesystem::rename(path, path + ".1");
    api.jobs().write("t-1", false, "next");
  });
  REQUIRE(events.next());  // it reads the old one, and knows of the next
  events.take();
  std::filesystem::remove(path);
  CHECK(events.text("stdout", 6 + text.size()).size() == 6 + text.size());
  api.on_loop([&] { api.jobs().end("t-1", 0); });
  CHECK_THAT(events.to_end(), Contains("succeeded"));
}

namespace {

constexpr const char* kRankLog = "/v1/jobs/t-1/logs?follow=1&rank=0";

}  // namespace

SCENARIO("a reader of a rank that was cut off goes on in the attempt that it has read",
         "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  auto& jobs = api.jobs();
  const auto attempt_1 = jobs.logs("t-1") / "run_a/attempt_1";
  std::string last;
  GIVEN("a reader that was cut off in the middle of attempt 1, before the job began anew twice") {
    jobs.write_rank("t-1", "run_before", 0, "of the run before\n");
    jobs.write_rank("t-1", "run_a", 0, "of attempt 0\n");
    jobs.write_rank("t-1", "run_a", 1, "seen\n");
    jobs.write_rank("t-1", "run_a", 1, "bad\n", true);
    {
      EventReader events{api, kRankLog};
      CHECK(events.text("stdout", 1) == "seen\n");
      CHECK(events.text("stderr", 1) == "bad\n");
      last = events.id;
    }
    jobs.write_rank("t-1", "run_a", 1, "unseen\n");
    jobs.write_rank("t-1", "run_a", 2, "of attempt 2\n");
    jobs.write_rank("t-1", "run_a", 2, "bad 2\n", true);
    jobs.write_rank("t-1", "run_b", 0, "of run b\n");
    jobs.write_rank("t-1", "run_c", 0, "of run c\n");
    const auto read_on = [&](const std::string& id, const std::string& query = {}) {
      api.on_loop([&] { jobs.end("t-1", 0); });
      EventReader events{api, kRankLog + query, id};
      CHECK_THAT(events.to_end(), Contains("succeeded"));
      return events;
    };
    THEN("it gets the rest of that attempt, then each later one") {
      const auto events = read_on(last);
      CHECK(events.texts.at("stdout") == "unseen\nof attempt 2\nof run b\nof run c\n");
      CHECK(events.texts.at("stderr") == "bad 2\n");
      CHECK(read_on(events.id).texts.empty());
    }
    THEN("it is not sent to the end of a file by the words that it began with") {
      CHECK(read_on(last, "&from=end").texts.at("stdout") ==
            "unseen\nof attempt 2\nof run b\nof run c\n");
    }
    WHEN("that attempt is gone") {
      std::filesystem::remove_all(attempt_1);
      THEN("it begins with the oldest one after it") {
        CHECK(read_on(last).texts.at("stdout") == "of attempt 2\nof run b\nof run c\n");
      }
    }
    WHEN("that run is gone") {
      std::filesystem::remove_all(jobs.logs("t-1") / "run_a");
      THEN("it begins with the run after it, and repeats none before") {
        CHECK(read_on(last).texts.at("stdout") == "of run b\nof run c\n");
      }
    }
    WHEN("that attempt's file was cut off") {
      std::filesystem::resize_file(attempt_1 / "0/stdout.log", 0);
      jobs.write_rank("t-1", "run_c", 0, "more\n");
      THEN("it is read from its beginning") {
        jobs.append(attempt_1 / "0/stdout.log", "new\n");
        CHECK(read_on(last).texts.at("stdout") == "new\nof attempt 2\nof run b\nof run c\nmore\n");
      }
    }
    THEN("an id of an older daemon counts in the newest attempt") {
      CHECK(read_on("3,0").texts.at("stdout") == "run c\n");
    }
    THEN("an id that names no attempt of the job leads to no other file") {
      CHECK(read_on("0,0,9999999999999:1:0,9999999999999:1:0").texts.at("stdout") == "of run c\n");
      const auto refused = EventReader(api, kRankLog, "0,0,1:../../x:0,1:1:0").head;
      CHECK_THAT(refused, StartsWith("HTTP/1.1 400"));
    }
  }
}

SCENARIO("a follower of a rank shows each attempt, however quickly they end", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  auto& jobs = api.jobs();
  GIVEN("one that has read attempt 0") {
    jobs.write_rank("t-1", "run_a", 0, "a0\n");
    EventReader events{api, kRankLog};
    CHECK(events.text("stdout", 1) == "a0\n");
    WHEN("the job begins anew several times while it doesn't look") {
      api.on_loop([&] {
        jobs.write_rank("t-1", "run_a", 0, "the end");
        jobs.write_rank("t-1", "run_a", 1, "a1\n");
        jobs.write_rank("t-1", "run_a", 2, "");  // of which nothing is to be read
        jobs.write_rank("t-1", "run_a", 7, "a7\n");
        jobs.write_rank("t-1", "run_b", 0, "b0\n");
        jobs.write_rank("t-1", "run_c", 0, "c0\n");
        jobs.end("t-1", 1);
      });
      THEN("it shows them all") {
        CHECK_THAT(events.to_end(), Contains("failed"));
        CHECK(events.texts["stdout"] == "a0\nthe enda1\na7\nb0\nc0\n");
      }
    }
    WHEN("the rank has no part in thousands of attempts") {
      for (const auto* run : {"run_a", "run_b", "run_c"})
        for (int attempt = 1; attempt < 1'500; ++attempt) jobs.make_attempt("t-1", run, attempt);
      api.on_loop([&] {
        jobs.write_rank("t-1", "run_a", 1'500, "a1500\n");
        jobs.write_rank("t-1", "run_c", 1'500, "c1500\n");
        jobs.end("t-1", 1);
      });
      THEN("it goes on with the next one in which it has") {
        CHECK_THAT(events.to_end(), Contains("failed"));
        CHECK(events.texts["stdout"] == "a0\na1500\nc1500\n");
      }
    }
  }
  GIVEN("one that began before the workers") {
    EventReader events{api, kRankLog};
    REQUIRE(events.next());  // it has looked
    api.on_loop([&] {
      jobs.write_rank("t-1", "run_a", 0, "a0\n");
      jobs.write_rank("t-1", "run_a", 1, "a1\n");
      jobs.write_rank("t-1", "run_b", 0, "b0\n");
    });
    THEN("it shows a first attempt that was over before the next look") {
      CHECK(events.text("stdout", 9) == "a0\na1\nb0\n");
    }
  }
  GIVEN("one that was cut off before there was anything to show") {
    std::string last;
    {
      EventReader events{api, kRankLog};
      REQUIRE(events.next());
      CHECK(events.data.empty());
      last = events.id;
    }
    jobs.write_rank("t-1", "run_a", 0, "a0\n");
    jobs.write_rank("t-1", "run_a", 1, "a1\n");
    THEN("it misses no attempt either") {
      EventReader events{api, kRankLog, last};
      CHECK(events.text("stdout", 6) == "a0\na1\n");
    }
  }
  GIVEN("one from the end on, where the newest attempt has written nothing yet") {
    jobs.write_rank("t-1", "run_a", 0, "a0\n");
    jobs.make_attempt("t-1", "run_a", 1);
    std::string last;
    {
      EventReader events{api, std::string{kRankLog} + "&from=end"};
      REQUIRE(events.next());
      last = events.id;
    }
    api.on_loop([&] {
      jobs.write_rank("t-1", "run_a", 1, "a1\n");
      jobs.write_rank("t-1", "run_a", 2, "a2\n");
    });
    THEN("it shows that attempt, and nothing of those before, also when it was cut off") {
      EventReader events{api, kRankLog, last};
      CHECK(events.text("stdout", 6) == "a1\na2\n");
    }
  }
}

TEST_CASE("a reader that stops costs a bounded amount, and others go on", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  const std::string text(20'000'000, 'x');
  api.jobs().write("t-1", false, text);
  auto stuck = api.client();
  stuck.send("GET /v1/jobs/t-1/logs?follow=1 HTTP/1.1\r\n\r\n");
  CHECK_THAT(stuck.read_to("event: stdout"), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(api.ask("GET /healthz"), StartsWith("HTTP/1.1 200"));
  EventReader quick{api, "/v1/jobs/t-1/logs?follow=1"};
  CHECK(quick.text("stdout", text.size()) == text);
  { auto gone = std::move(stuck); }
  // Its handler waits in a write, and learns it all the same.
  CHECK(api.comes_true([&] { return api.server().connections() == 1; }));
}

TEST_CASE("a follower that goes away while nothing happens is forgotten", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  api.jobs().write("t-1", false, "x\n");
  {
    EventReader events{api, "/v1/jobs/t-1/logs?follow=1"};
    REQUIRE(events.next());
    REQUIRE(api.comes_true([&] { return api.growth().watched() == 1; }));
  }
  CHECK(api.comes_true([&] { return api.server().connections() == 0; }));
  CHECK(api.growth().watched() == 0);
}

TEST_CASE("a removed job ends its followers", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  EventReader events{api, "/v1/jobs/t-1/logs?follow=1"};
  api.on_loop([&] {
    api.jobs().jobs.erase("t-1");
    api.jobs().tell("t-1", ::geteuid(), "removed");
  });
  CHECK_THAT(events.to_end(), Contains("removed"));
}

TEST_CASE("a stream of events that has none to tell was silent for ever", "[agent][http]") {
  ApiServer api;
  api.set_event_silence(Millis{50});
  auto line = api.client();
  REQUIRE(line.send("GET /v1/events?follow=1 HTTP/1.1\r\nHost: acc\r\n\r\n"));
  CHECK_THAT(line.read_to(": events follow\n\n"), Contains("text/event-stream"));
  for (int i = 0; i < 2; ++i) CHECK_THAT(line.read_to(":\n\n"), Contains(":\n\n"));
  api.add_job("t-1", ::geteuid());
  CHECK_THAT(line.read_to("submitted"), Contains("id: 1\n"));
}

TEST_CASE("events are listed, followed, and resumed behind the last one seen", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  CHECK_THAT(api.ask("GET /v1/events"), Contains(R"("kind":"submitted")"));
  std::string last;
  {
    EventReader events{api, "/v1/events?follow=1"};
    REQUIRE(events.next());  // the comment
    REQUIRE(events.next());
    CHECK(events.id == "1");
    CHECK_THAT(events.data, Contains("submitted"));
    last = events.id;
  }
  api.on_loop([&] { api.jobs().end("t-1", 0); });
  api.add_job("t-2", ::geteuid());
  EventReader events{api, "/v1/events?follow=1", last};
  REQUIRE(events.next());
  REQUIRE(events.next());
  CHECK(events.id == "2");
  CHECK_THAT(events.data, Contains("ended"));
  REQUIRE(events.next());
  CHECK(events.id == "3");
  api.on_loop([&] { api.jobs().end("t-2", 1); });
  REQUIRE(events.next());
  CHECK(events.id == "4");
  CHECK_THAT(api.ask("GET /v1/events?follow=maybe"), StartsWith("HTTP/1.1 400"));
}
