#include "rendezvous/codec.hpp"

#include "tests/unit/rendezvous/message_tools.hpp"
#include "tests/unit/rendezvous/sample_messages.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <set>

using namespace acc;
using namespace acc::rendezvous;

namespace {

void set_length(std::string& frame) {
  store(static_cast<std::uint32_t>(frame.size()), frame.data());
}

/// A frame of that type with these fields, as a peer that obeys no limit would send it.
template <class... T>
std::string forged(const Message& type, const T&... parts) {
  auto frame = encode(kSampleEpoch, type).substr(0, kHeaderSize);
  FieldWriter write{frame};
  write(parts...);
  set_length(frame);
  return frame;
}

std::string complaint_of(std::string_view frame) {
  const auto result = decode(frame);
  if (result) return "no complaint";
  return result.error().code == Errc::malformed ? result.error().what : "wrong code";
}

/// Any bytes give an error in words, or a message that stands for these very bytes.
bool is_total_for(std::string_view frame) {
  const auto result = decode(frame);
  if (!result) return !result.error().what.empty();
  // Of another major version only a part was read.
  const auto* join = std::get_if<Join>(&result->message);
  if (frame[7] != kVersionMajor || (join && join->version_major != kVersionMajor)) return true;
  const auto again = encode(result->epoch, result->message);
  return again.size() <= frame.size() &&
         frame.substr(kHeaderSize).starts_with(std::string_view{again}.substr(kHeaderSize));
}

}  // namespace

TEST_CASE("every message arrives as it was sent", "[rendezvous][codec]") {
  RandomFields random{20'260'101};
  for (auto message : one_of_each()) {
    INFO(name_of(message));
    for (int i = 0; i < 200; ++i) {
      Epoch epoch;
      random(epoch);
      std::visit([&](auto& m) { fields(random, m); }, message);
      if (auto* join = std::get_if<Join>(&message)) join->version_major = kVersionMajor;
      const auto frame = encode(epoch, message);
      if (frame.size() > kMaxFrame) continue;  // a sender splits such a table
      const auto result = decode(frame);
      REQUIRE(result.has_value());
      REQUIRE(result->epoch == epoch);
      REQUIRE(result->message.index() == message.index());
      REQUIRE(show(result->message) == show(message));
      REQUIRE(encode(result->epoch, result->message) == frame);
    }
  }
}

TEST_CASE("the header stands where it will always stand", "[rendezvous][codec]") {
  const auto frame = encode({{0x04030201, 0x08070605}, Round{0x100f0e0d0c0b0a09}}, Stopped{true});
  const std::string expected{
      "\x19\0\0\0"                        // 25 bytes
      "\x06\0"                            // stopped
      "\x01"                              // mandatory
      "\x01"                              // major version
      "\x01\x02\x03\x04\x05\x06\x07\x08"  // term: number, candidate
      "\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"  // round
      "\x01",                             // progress
      25};
  CHECK(frame == expected);
}

TEST_CASE("a frame that is cut off anywhere is refused", "[rendezvous][codec]") {
  for (const auto& message : sample_messages()) {
    const auto whole = encode(kSampleEpoch, message);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      auto cut = whole.substr(0, size);
      INFO(name_of(message) << " of " << whole.size() << " bytes cut to " << size);
      REQUIRE(complaint_of(cut).starts_with("frame of "));
      if (size < kHeaderSize) continue;
      set_length(cut);
      REQUIRE(complaint_of(cut).starts_with(std::string{name_of(message)} + ": ends early"));
    }
  }
}

TEST_CASE("no changed bit does more than give an error or another message", "[rendezvous][codec]") {
  RandomFields dice{7};
  for (const auto& message : sample_messages()) {
    INFO(name_of(message));
    const auto whole = encode(kSampleEpoch, message);
    int failures = 0;
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      auto changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      failures += is_total_for(changed) ? 0 : 1;
      for (int more = 0; more < 3; ++more)
        changed[4 + dice.below(whole.size() - 4)] = static_cast<char>(dice.below(256));
      failures += is_total_for(changed) ? 0 : 1;
    }
    CHECK(failures == 0);
  }
}

TEST_CASE("fields of a later minor version are passed over", "[rendezvous][codec]") {
  for (const auto& message : sample_messages()) {
    auto frame = encode(kSampleEpoch, message) + "a field that 1.1 may add";
    set_length(frame);
    const auto result = decode(frame);
    REQUIRE(result.has_value());
    CHECK(show(result->message) == show(message));
  }
}

TEST_CASE("what is beyond a limit is refused in words", "[rendezvous][codec]") {
  const auto most = [](std::size_t size) { return std::string(size, 'x'); };
  SECTION("texts") {
    CHECK(complaint_of(forged(Leave{}, std::uint32_t{70'000}, NodeRanks{})) ==
          "leave: text of 70000 bytes, at most 4096 (byte 28)");
    CHECK(complaint_of(forged(Leave{}, most(kMaxText))) == "no complaint");
  }
  SECTION("keys and values of the store") {
    KvRestore restore{.key = most(kMaxKey), .value = most(kMaxValue)};
    CHECK(complaint_of(encode({}, restore)) == "no complaint");
    restore.key += 'x';
    CHECK(complaint_of(encode({}, restore)) ==
          "kv_restore: text of 257 bytes, at most 256 (byte 28)");
    restore = {.key = "k", .value = most(kMaxValue + 1)};
    CHECK(complaint_of(encode({}, restore)) ==
          "kv_restore: text of 262145 bytes, at most 262144 (byte 33)");
  }
  SECTION("lists") {
    auto join = sample_join();
    join.facts.resize(kMaxFacts);
    CHECK(complaint_of(encode({}, join)) == "no complaint");
    join.facts.resize(kMaxFacts + 1);
    CHECK_THAT(complaint_of(encode({}, join)), Catch::StartsWith("join: list of 17, at most 16"));
    Assigned assigned;
    assigned.standbys.resize(kMaxStandbys + 1);
    CHECK_THAT(complaint_of(encode({}, assigned)),
               Catch::StartsWith("assigned: list of 9, at most 8"));
    Table table;
    table.rows.resize(kMaxTableRows);
    CHECK(complaint_of(encode({}, table)) == "no complaint");
    table.rows.resize(kMaxTableRows + 1);
    CHECK(complaint_of(encode({}, table)) == "table: list of 8193, at most 8192 (byte 36)");
  }
  SECTION("a list that announces more than there is") {
    CHECK(complaint_of(forged(Table{}, 0U, 9000U, 8000U)) ==
          "table: ends early, 0 bytes left (byte 36)");
  }
  SECTION("a frame") {
    Table table;
    table.rows.resize(300, {most(4000), "h", "", Rank{0}, 1});
    CHECK_THAT(complaint_of(encode({}, table)), Catch::EndsWith("at most 1048576"));
  }
}

TEST_CASE("values that mean nothing are refused in words", "[rendezvous][codec]") {
  CHECK(complaint_of(forged(Stopped{}, std::uint8_t{2})) ==
        "stopped: neither yes nor no: 2 (byte 25)");
  CHECK(complaint_of(forged(Refused{}, std::uint8_t{8})) == "refused: unknown refusal 8 (byte 25)");
  CHECK(complaint_of(forged(KvReply{}, std::uint64_t{1}, std::uint8_t{200})) ==
        "kv_reply: unknown status 200 (byte 33)");
  CHECK(complaint_of(forged(Start{}, HostPort{}, 1U, std::int64_t{-1})) ==
        "start: duration of -1 ms, between 0 and 315360000000 (byte 42)");
  Assigned nobody;
  nobody.world_size = WorldSize{0};
  CHECK_THAT(complaint_of(encode({}, nobody)), Catch::StartsWith("assigned: world size 0"));
  auto join = sample_join();
  join.policy->restart.jitter = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(complaint_of(encode({}, join)),
             Catch::StartsWith("join: fraction that is not between 0 and 1"));
}

TEST_CASE("durations are cut to what can be added up", "[rendezvous][codec]") {
  const auto there_and_back = [](Millis time) {
    return std::get<HeartbeatAck>(decode(encode({}, HeartbeatAck{.granted = time}))->message)
        .granted;
  };
  CHECK(there_and_back(Millis::max()) == kMaxDuration);
  CHECK(there_and_back(Millis{-5}) == Millis{0});
}

TEST_CASE("a text that is too long is cut between two characters", "[rendezvous][codec]") {
  // 4095 bytes, then a character of two.
  const std::string text = std::string(kMaxText - 1, 'x') + "é and more";
  const auto result = decode(encode({}, Notice{text}));
  REQUIRE(result.has_value());
  CHECK(std::get<Notice>(result->message).text == std::string(kMaxText - 1, 'x'));
}

TEST_CASE("frames that aren't whole or not known are refused in words", "[rendezvous][codec]") {
  auto frame = encode({}, TableRequest{});
  CHECK(complaint_of("") == "frame of 0 bytes, a header has 24");
  CHECK(complaint_of(frame + "x") == "frame of 25 bytes that says 24");
  CHECK(complaint_of(std::string(kMaxFrame + 1, '\0')) ==
        "frame of 1048577 bytes, at most 1048576");
  store(std::uint16_t{777}, frame.data() + 4);
  CHECK(complaint_of(frame) == "unknown message type 777");
  CHECK_FALSE(may_be_skipped(frame));
  frame[6] = 0;
  CHECK(may_be_skipped(frame));
  CHECK_FALSE(may_be_skipped(encode({}, Notice{"known"})));
}

SCENARIO("a peer of another major version comes", "[rendezvous][codec]") {
  GIVEN("its Join, of which only the version numbers are as ours") {
    auto frame = forged(Join{}, std::uint16_t{2}, std::uint16_t{5}, std::uint64_t{0xffffffff});
    frame[7] = 2;
    THEN("both numbers are known, so that it can be refused") {
      const auto result = decode(frame);
      REQUIRE(result.has_value());
      const auto& join = std::get<Join>(result->message);
      CHECK(join.version_major == 2);
      CHECK(join.version_minor == 5);
      CHECK(join.job.empty());
    }
    THEN("a header that says something else is refused") {
      frame[7] = 1;
      CHECK(complaint_of(frame) == "join: protocol version 1 in the header, 2 in the message");
    }
    THEN("the version must be there") {
      frame.resize(kHeaderSize + 3);
      set_length(frame);
      CHECK(complaint_of(frame) == "join: ends early, 1 bytes left (byte 26)");
    }
  }
  GIVEN("our own Join as such a peer would write it") {
    auto join = sample_join();
    join.version_major = 2;
    THEN("its header says so too") { CHECK(decode(encode({}, join)).has_value()); }
  }
  GIVEN("its refusal") {
    auto frame = forged(Refused{}, Refusal::version, std::string{"we speak 2.5, you 1.0"});
    frame[7] = 2;
    THEN("our user can read why") {
      const auto result = decode(frame);
      REQUIRE(result.has_value());
      CHECK(std::get<Refused>(result->message).what == "we speak 2.5, you 1.0");
    }
  }
  GIVEN("anything else") {
    auto frame = encode({}, Heartbeat{});
    frame[7] = 2;
    THEN("it is refused with both versions, and never skipped") {
      CHECK(complaint_of(frame) == "message type 3 of protocol version 2, this is version 1");
      CHECK_FALSE(may_be_skipped(frame));
    }
  }
}

TEST_CASE("every kind of message has its own name and number", "[rendezvous][codec]") {
  std::set<std::string_view> names;
  std::set<std::uint16_t> numbers;
  for (const auto& message : one_of_each()) {
    names.insert(name_of(message));
    numbers.insert(load<std::uint16_t>(encode({}, message).data() + 4));
  }
  CHECK(names.size() == std::variant_size_v<Message>);
  CHECK(numbers.size() == std::variant_size_v<Message>);
  CHECK(names.count("") == 0);
  CHECK(name_of(WorkerFailed{}) == "worker_failed");
}
