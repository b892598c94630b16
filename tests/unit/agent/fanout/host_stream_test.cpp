#include "agent/fanout/host_stream.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

constexpr auto kWorker = DropPolicy::Origin::worker;

/// A host's standard output, shown nowhere; what would be is its tail.
struct Heard {
  std::vector<LaunchMark> marks;
  HostStream stream{{}, "t", [this](const LaunchMark& mark) { marks.push_back(mark); }};

  Heard() { stream.open(); }
  void take(std::string_view bytes, std::size_t piece) {
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      stream.take(bytes.substr(at, piece), kWorker);
  }
};

}  // namespace

TEST_CASE("a host's end was lost behind output with a record separator and without a line's end",
          "[agent][fanout]") {
  const std::string end = encode(JobEnded{0}, "t");
  const std::string_view output = "line\na\036b";
  const std::size_t piece = GENERATE(1, 3, 1000);
  Heard heard;
  heard.take(std::string{output} + end + "\036c" + end, piece);
  REQUIRE(heard.marks.size() == 2);
  for (const auto& mark : heard.marks) CHECK(std::get<JobEnded>(mark).exit_code == 0);
  CHECK(heard.stream.tail() == std::string{output} + "\036c");
}

TEST_CASE("what might have become a mark was lost at the end of a host's output",
          "[agent][fanout]") {
  Heard heard;
  heard.take("a\036b", 1000);
  CHECK(heard.stream.tail() == "a");
  WorkerStream& as_its_pump_sees_it = heard.stream;
  as_its_pump_sees_it.finish();
  CHECK(heard.stream.tail() == "a\036b");
  as_its_pump_sees_it.finish();
  CHECK(heard.stream.tail() == "a\036b");
}

TEST_CASE("a mark that is too long was printed as output", "[agent][fanout]") {
  const std::string end = encode(JobEnded{0}, "t");
  const std::string too_long = "\036acc-node t event {" + std::string(kMaxEventMark, 'x') + "\n";
  const std::size_t piece = GENERATE(1000, 4096, 1'000'000);
  Heard heard;
  heard.take("before\n" + too_long + "between\n" + too_long + end, piece);
  REQUIRE(heard.stream.tail().size() < 100);
  CHECK(heard.stream.tail() == "before\nbetween\n");
  REQUIRE(heard.marks.size() == 1);
  CHECK(std::get<JobEnded>(heard.marks[0]).exit_code == 0);
}

TEST_CASE("a mark that its host could not end was printed as output", "[agent][fanout]") {
  const std::size_t length = GENERATE(std::size_t{100}, 2 * kMaxEventMark);
  Heard heard;
  heard.take("before\n\036acc-node t event {" + std::string(length, 'x'), 4096);
  WorkerStream& as_its_pump_sees_it = heard.stream;
  as_its_pump_sees_it.finish();
  REQUIRE(heard.stream.tail().size() < 100);
  CHECK(heard.stream.tail() == "before\n");
}
