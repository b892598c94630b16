#include "agent/job_events.hpp"

#include "agent/event_keys.hpp"
#include "agent/event_log.hpp"
#include "agent/output/event_file_line.hpp"
#include "tests/support/temporary_folder.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

using EventKeySet = std::set<std::string>;

struct RecordedEvents {
  std::vector<nlohmann::json> lines;
  std::string node = "node-a";
  JobEvents events;
  RecordedEvents() {
    events.open([this](std::string_view line) { lines.push_back(nlohmann::json::parse(line)); },
                "job-1", [this] { return node; });
  }
};

WorkerRecord worker(unsigned rank, ExitStatus status) {
  WorkerRecord record;
  record.rank = Rank{rank};
  record.local_rank = LocalRank{rank};
  record.pid = 100 + static_cast<pid_t>(rank);
  record.status = status;
  record.started = Instant{} + Millis{1'000};
  record.ended = Instant{} + Millis{1'250};
  return record;
}

void tell_all(JobEvents& events) {
  JobPlan plan;
  plan.command = {"python3", "\xff train.py"};
  events.job_started(plan, 7);
  events.nodes({{"a", "host-a", Rank{0}, 2}, {"b", "host-b", Rank{2}, 2}});
  const std::vector workers{worker(0, Exited{0}), worker(1, Signaled{SIGKILL, false})};
  events.round_started({.round = Round{3}, .world_size = WorldSize{4}, .nodes = 2, .reason = ""},
                       workers);
  for (const auto& one : workers) events.worker_ended(Round{3}, one);
  FailureReport failure;
  failure.worker = workers[1];
  failure.round = 3;
  failure.cause = "was killed by SIGKILL (9), not by OOM";
  events.failed(failure);
  events.start_failed(Round{3}, "no memory");
  events.restarting(1, 3, Millis{2'000}, failure.cause);
  events.nodes({{"b", "host-b", Rank{0}, 2}});
  events.stop_ordered("b", "a lost");
  events.progress(Round{1}, {Rank{3}, 41, 2.5});
  events.straggler(Round{1}, {Rank{2}, 0.8, 2.5, Millis{40'000}});
  events.stopping(SIGTERM, Millis{15'000});
  events.health({"gpu", "GPU 3", health::Severity::unfit, "GPU 3 is lost"});
  events.output_lost({"stdout", "No space left on device", 10, 1, {}});
  events.job_ended({});
}

}  // namespace

TEST_CASE("events of two hosts with one host name had one node name", "[agent][events]") {
  RecordedEvents recorded;
  recorded.events.stopping(SIGTERM, Millis{1});
  recorded.node = "node-a-1";  // the coordinator knew another node-a
  recorded.events.stopping(SIGTERM, Millis{1});
  CHECK(recorded.lines.at(0)["node"] == "node-a");
  CHECK(recorded.lines.at(1)["node"] == "node-a-1");
}

TEST_CASE("each event has the keys that are documented, and no others", "[agent][events]") {
  std::map<std::string, EventKeySet> documented;
  EventKeySet common;
  for (const auto& key : kEventKeys) {
    if (key.event.empty()) {
      common.emplace(key.name);
    } else {
      documented[std::string{key.event}].emplace(key.name);
    }
  }
  RecordedEvents recorded;
  tell_all(recorded.events);
  std::map<std::string, EventKeySet> seen;
  for (const auto& line : recorded.lines) {
    auto& keys = seen[line["event"]];
    for (const auto& [key, value] : line.items()) keys.insert(key);
    for (const auto& key : common) CHECK(keys.erase(key) == 1);
    for (const auto& key : common) keys.erase(key);
    CHECK(line["v"] == kEventsVersion);
  }
  CHECK(seen == documented);
}

TEST_CASE("lines are numbered without gaps, and foreign bytes don't break them",
          "[agent][events]") {
  RecordedEvents recorded;
  tell_all(recorded.events);
  for (std::size_t i = 0; i < recorded.lines.size(); ++i) CHECK(recorded.lines[i]["seq"] == i);
  CHECK(recorded.lines.front()["command"][1] == "\xef\xbf\xbd train.py");
}

TEST_CASE("what happened is counted, also where nothing is written", "[agent][events]") {
  JobEvents events;
  tell_all(events);
  const auto& counts = events.counts();
  CHECK(counts.rounds == 1);
  CHECK(counts.workers_succeeded == 1);
  CHECK(counts.workers_failed == 1);
  CHECK(counts.failures == 1);
  CHECK(counts.start_failures == 1);
  CHECK(counts.restarts == 1);
  CHECK(counts.nodes_joined == 2);
  CHECK(counts.nodes_lost == 1);
}

TEST_CASE("events are appended, and half a line of a killed job stays by itself",
          "[agent][events]") {
  const acc::testing::TestFolder folder;
  const std::string path = (folder / "events.jsonl").string();
  std::ofstream{path} << "{\"seq\":0}\n{\"se";
  boost::asio::io_context io;
  {
    EventLog log{io, path, 0, Millis{1'000}, {}};
    log.write("{\"seq\":1}");
    log.write("{\"seq\":2}");
    log.finish({Millis{20'000}, Millis{20'000}});
    CHECK(!log.losses());
  }
  std::ifstream in{path};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  CHECK(text == "{\"seq\":0}\n{\"se\n{\"seq\":1}\n{\"seq\":2}\n");
}

TEST_CASE("a full disk loses events, which is told once and counted", "[agent][events]") {
  boost::asio::io_context io;
  int told = 0;
  EventLog log{io, "/dev/full", 0, Millis{1'000}, [&](const Losses& losses) {
                 ++told;
                 CHECK(losses.why == "No space left on device");
               }};
  log.write("one");
  log.write("two");
  log.finish({Millis{20'000}, Millis{20'000}});
  log.write("three");
  log.finish({Millis{20'000}, Millis{20'000}});
  io.run();
  REQUIRE(log.losses());
  CHECK(log.losses()->lines == 3);
  CHECK(log.losses()->where == "events in /dev/full");
  CHECK(told == 1);
}

namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

TEST_CASE("the file of events of a job that restarts for ever doesn't fill the disk",
          "[agent][events]") {
  constexpr std::uint64_t kLargest = 1000;
  const acc::testing::TestFolder folder;
  const std::string path = (folder / "events.jsonl").string();
  std::string all;  // each byte that was ever written, with the lines of renamed files
  std::uint64_t rotations = 0;
  for (int start = 0; start < 4; ++start) {
    boost::asio::io_context io;
    EventLog log{io, path, kLargest, Millis{1'000}, {}};
    for (int i = 0; i < 25; ++i) {
      const std::string line = "{\"seq\":" + std::to_string(i) + ",\"event\":\"" +
                               std::string(static_cast<std::size_t>(10 + 7 * i % 60), 'x') + "\"}";
      log.write(line);
      log.finish({Millis{20'000}, Millis{20'000}});
      const auto now = text_of_file(path);
      CHECK(now.size() <= kLargest);
      const auto begin = begins_at(now);
      if (begin > all.size() - std::min<std::size_t>(all.size(), kLargest) && begin == all.size()) {
        ++rotations;
        all += event_file_line(begin);
        CHECK(text_of_file(path + ".1").size() <= kLargest);
      }
      all += line + "\n";
      CHECK(all.substr(static_cast<std::size_t>(begin)) == now);
    }
    CHECK(!log.losses());
  }
  CHECK(rotations > 3);
  const auto previous = text_of_file(path + ".1");
  const auto current = text_of_file(path);
  CHECK(begins_at(previous) + previous.size() == begins_at(current));
  CHECK(all.substr(static_cast<std::size_t>(begins_at(previous))) == previous + current);
}

TEST_CASE("a renaming of the events' file that was cut off is completed", "[agent][events]") {
  const acc::testing::TestFolder folder;
  const std::string path = (folder / "events.jsonl").string();
  std::ofstream{path + ".next"} << event_file_line(5000);
  boost::asio::io_context io;
  EventLog log{io, path, 1000, Millis{1'000}, {}};
  log.write("{}");
  log.finish({Millis{20'000}, Millis{20'000}});
  CHECK(text_of_file(path) == event_file_line(5000) + "{}\n");
}

TEST_CASE("what a file of events says of its place is not trusted", "[agent][events]") {
  CHECK(begins_at(event_file_line(77)) == 77);
  CHECK(begins_at("") == 0);
  CHECK(begins_at(R"({"v":1,"seq":0})") == 0);
  CHECK(begins_at(R"({"v":1,"event":"file_continued","begins_at":)") == 0);
  CHECK(begins_at("{\"v\":1,\"event\":\"file_continued\",\"begins_at\":-1}\n") == 0);
  CHECK(begins_at("{\"v\":1,\"event\":\"file_continued\",\"begins_at\":18446744073709551615}\n") ==
        0);
}
