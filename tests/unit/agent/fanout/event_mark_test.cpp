#include "agent/fanout/event_mark.hpp"

#include "agent/fanout/orders.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;
using Json = nlohmann::ordered_json;

namespace {

std::string event_of(const std::vector<std::string>& command) {
  return Json{{"seq", 0}, {"event", "job_started"}, {"command", command}, {"workers", 2}}.dump();
}

/// As its reader gets it.
Json sent(const std::string& line) {
  const auto mark = event_mark(line, "t");
  REQUIRE_FALSE(mark.empty());
  REQUIRE(mark.size() <= kMaxEventMark);
  REQUIRE(mark.back() == '\n');
  const auto read = decode_mark(std::string_view{mark}.substr(0, mark.size() - 1), "t");
  REQUIRE(read);
  return Json::parse(std::get<HostEvent>(*read).line);
}

}  // namespace

TEST_CASE("an event that fits is sent as it is", "[agent][fanout]") {
  const auto line = event_of({"python3", "train.py", std::string(30'000, 'x')});
  CHECK(event_mark(line, "t") == encode(HostEvent{line}, "t"));
}

TEST_CASE("a command line of 64 KiB made a mark that nobody took", "[agent][fanout]") {
  // Plain bytes, one that the mark escapes, one that JSON does, and characters of several bytes.
  for (const std::string text : {"x", "%", "\x01", "\x7f", "é", "…"}) {
    std::string word;
    while (word.size() < 100'000) word += text;
    const auto event = sent(event_of({"python3", "train.py", word, "--last"}));
    CHECK(event["seq"] == 0);
    CHECK(event["workers"] == 2);
    const auto command = event["command"].get<std::vector<std::string>>();
    REQUIRE(command.size() == 3);
    CHECK(command[1] == "train.py");
    CHECK(command[2].ends_with(text + "…"));
    CHECK(word.starts_with(command[2].substr(0, command[2].size() - 3)));
  }
}

TEST_CASE("many words are cut where the room ends, whichever that is", "[agent][fanout]") {
  for (const std::size_t length : {0, 1, 50, 8191, 8192, 8193}) {
    const std::vector<std::string> words(100'000 / (length + 1) + 1, std::string(length, 'x'));
    const auto command = sent(event_of(words))["command"].get<std::vector<std::string>>();
    REQUIRE(command.size() < words.size());
    CHECK(command.back().ends_with("…"));
  }
}

TEST_CASE("what is too long without a command, or is no event, isn't sent", "[agent][fanout]") {
  const std::string text(kMaxEventMark, 'x');
  CHECK(event_mark(R"({"event":"failure","cause":")" + text + "\"}", "t").empty());
  CHECK(event_mark(text, "t").empty());
}
