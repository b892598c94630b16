#include "rendezvous/frame_splitter.hpp"

#include "rendezvous/codec.hpp"
#include "tests/unit/rendezvous/sample_messages.hpp"

#include <catch2/catch.hpp>

#include <malloc.h>

#include <vector>

using namespace acc;
using namespace acc::rendezvous;

namespace {

std::string sample_stream() {
  std::string stream;
  for (const auto& message : sample_messages()) encode(kSampleEpoch, message, stream);
  return stream;
}

/// Everything that comes out when `stream` arrives in pieces of that size.
std::vector<std::string> frames_of(FrameSplitter& splitter, std::string_view stream,
                                   std::size_t piece) {
  std::vector<std::string> frames;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    // A buffer of its own, filled with rubbish afterwards: a view into it that stays would be seen.
    std::string buffer{stream.substr(at, piece)};
    splitter.feed(buffer);
    for (;;) {
      auto frame = splitter.next();
      REQUIRE(frame.has_value());
      if (!*frame) break;
      frames.emplace_back(**frame);
    }
    buffer.assign(buffer.size(), '#');
  }
  return frames;
}

std::string complaint_of(std::string_view stream, std::size_t max_frame = kMaxFirstFrame) {
  FrameSplitter splitter{max_frame};
  splitter.feed(stream);
  for (;;) {
    const auto frame = splitter.next();
    if (frame && *frame) continue;
    return frame ? "no complaint" : frame.error().what;
  }
}

std::string frame_with(std::size_t value_size) {
  return encode({}, KvReply{.value = std::string(value_size, 'v')});
}

}  // namespace

TEST_CASE("a stream gives the same frames in pieces of any size", "[rendezvous][splitter]") {
  std::vector<std::string> expected;
  for (const auto& message : sample_messages()) expected.push_back(encode(kSampleEpoch, message));
  const auto stream = sample_stream();
  for (std::size_t piece = 1; piece <= stream.size(); piece += piece < 80 ? 1 : 97) {
    INFO("pieces of " << piece);
    FrameSplitter splitter;
    REQUIRE(frames_of(splitter, stream, piece) == expected);
    REQUIRE(splitter.pending() == 0);
  }
}

TEST_CASE("a frame that arrives whole isn't copied", "[rendezvous][splitter]") {
  const auto stream = sample_stream();
  FrameSplitter splitter;
  splitter.feed(stream);
  std::size_t at = 0;
  while (at < stream.size()) {
    const auto frame = splitter.next();
    REQUIRE(frame.has_value());
    REQUIRE(frame->has_value());
    CHECK((**frame).data() == stream.data() + at);
    at += (**frame).size();
  }
  CHECK(at == stream.size());
}

TEST_CASE("a begun frame is counted until its end is there", "[rendezvous][splitter]") {
  const auto frame = encode(kSampleEpoch, sample_assigned());
  FrameSplitter splitter;
  splitter.feed(std::string_view{frame}.substr(0, 30));
  REQUIRE_FALSE(splitter.next()->has_value());
  CHECK(splitter.pending() == 30);
  splitter.feed(std::string_view{frame}.substr(30));
  CHECK(splitter.next()->value() == frame);
  CHECK(splitter.pending() == 0);
}

TEST_CASE("an idle connection holds no buffer", "[rendezvous][splitter]") {
  CHECK(sizeof(FrameSplitter) <= 96);
  const auto frame = frame_with(12'000);
  std::vector<FrameSplitter> connections(1000);
  const auto before = ::mallinfo2().uordblks;
  for (auto& splitter : connections) REQUIRE(frames_of(splitter, frame, 7000).size() == 1);
  const auto after = ::mallinfo2().uordblks;
  if (before == 0) WARN("this allocator tells no numbers: memory isn't checked");
  CHECK(after <= before + connections.size() * 8);
}

SCENARIO("a peer sends more than it may", "[rendezvous][splitter]") {
  GIVEN("a first frame that announces more than the limit") {
    auto frame = frame_with(kMaxFirstFrame);
    THEN("four bytes are enough to refuse it") {
      CHECK(complaint_of(frame.substr(0, 3)) == "no complaint");
      CHECK(complaint_of(frame.substr(0, 4)) ==
            "not our protocol: a frame of 16429 bytes, between 24 and 16384 are allowed");
    }
    THEN("once the peer is welcome it may") {
      auto stream = encode({}, sample_join()) + frame;
      FrameSplitter splitter;
      splitter.feed(stream);
      REQUIRE(splitter.next()->has_value());
      splitter.set_max_frame(kMaxFrame);
      CHECK(splitter.next()->value() == frame);
    }
    THEN("without a welcome the second one is refused too, and again each time") {
      auto stream = encode({}, sample_join()) + frame;
      FrameSplitter splitter;
      splitter.feed(stream);
      REQUIRE(splitter.next()->has_value());
      for (int i = 0; i < 3; ++i) {
        const auto refused = splitter.next();
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().what == "a frame of 16429 bytes, between 24 and 16384 are allowed");
      }
    }
  }
  GIVEN("the largest frame that is allowed") {
    const auto frame = frame_with(kMaxFirstFrame - 45);
    REQUIRE(frame.size() == kMaxFirstFrame);
    THEN("it passes") { CHECK(complaint_of(frame) == "no complaint"); }
  }
  GIVEN("a length that is less than a header") {
    THEN("it is refused at once, also when the length itself comes byte by byte") {
      const std::string_view bytes{"\x17\0\0\0", 4};
      FrameSplitter splitter;
      for (int i = 0; i < 3; ++i) {
        splitter.feed(bytes.substr(i, 1));
        REQUIRE_FALSE(splitter.next()->has_value());
      }
      splitter.feed(bytes.substr(3));
      const auto refused = splitter.next();
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().code == Errc::malformed);
      CHECK(refused.error().what ==
            "not our protocol: a frame of 23 bytes, between 24 and 16384 are allowed");
    }
  }
}

TEST_CASE("a stranger at the port is named", "[rendezvous][splitter]") {
  CHECK(complaint_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n") == "not our protocol: an HTTP request?");
  CHECK(complaint_of("POST /x HTTP/1.1\r\n") == "not our protocol: an HTTP request?");
  CHECK(complaint_of("HTTP/1.1 400 Bad Request\r\n") == "not our protocol: an HTTP server?");
  // A web server that answers without a status line was "a frame of 1329865020 bytes".
  CHECK(complaint_of("<!DOCTYPE HTML>") == "not our protocol: text that begins with '<!DO'");
  CHECK(complaint_of("SSH-2.0-OpenSSH_9.2") == "not our protocol: an SSH connection?");
  CHECK(complaint_of({"\x16\x03\x01\x02\x00\x01", 6}) ==
        "not our protocol: TLS, while this side uses no secret?");
  CHECK(complaint_of({"\x15\x03\x03\x00\x02\x02\x28", 7}) ==
        "not our protocol: a TLS alert, while this side uses no secret?");
  CHECK_THAT(complaint_of("\xde\xad\xbe\xef"),
             Catch::StartsWith("not our protocol: a frame of 4022250974 bytes"));
}

TEST_CASE("a dispensable message of a later version is passed over", "[rendezvous][splitter]") {
  auto later = encode(kSampleEpoch, Notice{"in 1.1"});
  later[4] = 100;  // a type that 1.0 doesn't know
  const auto known = encode(kSampleEpoch, Heartbeat{});
  for (const std::size_t piece : {1, 7, 1000}) {
    FrameSplitter splitter;
    CHECK(frames_of(splitter, known + later + later + known + later, piece) ==
          std::vector<std::string>{known, known});
    CHECK(splitter.pending() == 0);
  }
}
