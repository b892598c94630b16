#include "runtime/group/flight_recorder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <atomic>
#include <thread>

using namespace acc::runtime;
using State = FlightRecorder::State;

namespace {

Descriptor numbered(std::uint64_t n) {
  Descriptor what;
  what.operation = Operation::all_reduce;
  what.dtype = DType::bf16;
  what.sequence = n;
  what.count = n * 10;
  return what;
}

}  // namespace

TEST_CASE("the last 2048 calls are kept, oldest first", "[flight]") {
  FlightRecorder record;
  CHECK(record.entries().empty());
  for (std::uint64_t n = 1; n <= 3000; ++n)
    record.end(record.begin(numbered(n), -1, State::running), State::done);
  const auto entries = record.entries();
  REQUIRE(entries.size() == 2048);
  CHECK(entries.front().what.sequence == 3000 - 2047);
  CHECK(entries.back().what.sequence == 3000);
  CHECK(entries.back().what.count == 30000);
  CHECK(entries.back().what.dtype == DType::bf16);
  CHECK(record.calls() == 3000);
}

TEST_CASE("times are those of the steady clock", "[flight]") {
  FlightRecorder record;
  const auto before = Clock::now();
  const auto ticket = record.begin(numbered(1), 3, State::running);
  while (Clock::now() - before < std::chrono::milliseconds{2}) {
  }
  record.end(ticket, State::done);
  const auto after = Clock::now();
  const auto entry = record.entries().at(0);
  const std::chrono::microseconds slack{50};
  CHECK(entry.begin > before - slack);
  CHECK(entry.end < after + slack);
  CHECK(entry.end - entry.begin > std::chrono::milliseconds{1});
  CHECK(entry.peer == 3);
}

TEST_CASE("the oldest running call is found, and no longer when it has ended", "[flight]") {
  FlightRecorder record;
  record.end(record.begin(numbered(1), -1, State::running), State::done);
  const auto second = record.begin(numbered(2), -1, State::running);
  const auto third = record.begin(numbered(3), -1, State::queued);
  REQUIRE(record.oldest_running());
  CHECK(record.oldest_running()->what.sequence == 2);
  record.end(second, State::failed);
  CHECK_FALSE(record.oldest_running());
  record.run(third);
  CHECK(record.oldest_running()->what.sequence == 3);
}

TEST_CASE("an end that comes after its place was used again changes nothing", "[flight]") {
  FlightRecorder record;
  const auto first = record.begin(numbered(1), -1, State::queued);
  for (std::uint64_t n = 2; n <= 2049; ++n) record.begin(numbered(n), -1, State::queued);
  record.end(first, State::failed);
  for (const auto& entry : record.entries()) CHECK(entry.state == State::queued);
}

TEST_CASE("a reader beside the writer sees whole calls only", "[flight]") {
  FlightRecorder record;
  std::atomic<bool> stop{false};
  std::thread writer{[&] {
    for (std::uint64_t n = 1; !stop; ++n)
      record.end(record.begin(numbered(n), -1, State::running), State::done);
  }};
  std::size_t seen = 0;
  std::size_t torn = 0;
  while (seen < 200'000)
    for (const auto& entry : record.entries()) {
      ++seen;
      torn += entry.what.count != entry.what.sequence * 10 || entry.ticket != entry.what.sequence;
    }
  stop = true;
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("a call as a line of JSON", "[flight]") {
  FlightRecorder record;
  record.end(record.begin(numbered(7), -1, State::running), State::done);
  const auto line = to_json(record.entries().at(0), "wor\"ld\n", 2);
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["group"] == "wor\"ld\n");
  CHECK(json["rank"] == 2);
  CHECK(json["operation"] == "all_reduce");
  CHECK(json["count"] == 70);
  CHECK(json["reduce"] == "sum");
  CHECK(json["state"] == "done");
  CHECK(json["end_ns"].get<std::int64_t>() >= json["begin_ns"].get<std::int64_t>());
  CHECK_FALSE(json.contains("root"));
}
