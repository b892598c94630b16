#include "rendezvous/channel.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

#include <sys/ioctl.h>

using namespace acc;
using namespace acc::rendezvous;
using namespace acc::rendezvous::test;
using Catch::Contains;
using Cause = Closed::Cause;

namespace {

/// Two channels that face each other.
struct Pair {
  Loop loop;
  Seen a;
  Seen b;

  explicit Pair(bool is_tls, ChannelLimits limits_a = {}, ChannelLimits limits_b = {}) {
    auto [one, other] = socket_pair();
    const auto tls = [&](auto make) { return is_tls ? make() : nullptr; };
    a.channel = std::make_shared<Channel>(
        loop.io, std::move(one), tls([] { return TlsContext::for_dialling(secret(), "job"); }),
        limits_a);
    b.channel = std::make_shared<Channel>(loop.io, std::move(other),
                                          tls([] { return TlsContext::for_listening(secret()); }),
                                          limits_b);
    a.channel->start(a.handlers());
    b.channel->start(b.handlers());
    REQUIRE(loop.until([&] { return a.is_open && b.is_open; }));
  }
};

/// One channel, and its other end by hand.
struct Half {
  Loop loop;
  Seen seen;
  UniqueFd other;

  explicit Half(ChannelLimits limits = {}) {
    auto [one, two] = socket_pair();
    other = std::move(two);
    seen.channel = std::make_shared<Channel>(loop.io, std::move(one), nullptr, limits);
    seen.channel->start(seen.handlers());
    REQUIRE(loop.until([&] { return seen.is_open; }));
  }
  void say(std::string_view bytes) {
    REQUIRE(::send(other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  bool is_closed_by(Cause cause) {
    return loop.until([&] { return !seen.closed.empty(); }) && seen.closed.at(0).cause == cause;
  }
};

}  // namespace

SCENARIO("frames travel both ways, whole and in order", "[rendezvous][channel]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Pair pair{is_tls};
  std::string all;
  for (std::uint32_t i = 0; i < 500; ++i) all += heartbeat(i);
  for (std::uint32_t i = 0; i < 500; ++i) REQUIRE(pair.a.channel->send(heartbeat(i)));
  REQUIRE(pair.b.channel->send(all));
  REQUIRE(
      pair.loop.until([&] { return pair.a.frames.size() == 500 && pair.b.frames.size() == 500; }));
  for (std::uint32_t i = 0; i < 500; ++i) {
    REQUIRE(pair.a.frames[i] == heartbeat(i));
    REQUIRE(pair.b.frames[i] == heartbeat(i));
  }
}

SCENARIO("what is more than the kernel takes", "[rendezvous][channel]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Pair pair{is_tls};
  std::string sent;
  pair.a.channel->send(heartbeat());
  for (int i = 0; i < 20; ++i) {
    const auto frame = notice(std::size_t{200'000} + static_cast<std::size_t>(i));
    REQUIRE(pair.a.channel->send(frame));
    sent += frame;
  }
  CHECK(pair.a.channel->queued() > 1'000'000);
  WHEN("the other side reads") {
    REQUIRE(pair.loop.until([&] { return pair.b.frames.size() == 21; }));
    THEN("it gets all of it") {
      std::string got;
      for (std::size_t i = 1; i < 21; ++i) got += pair.b.frames[i];
      CHECK((got == sent));
      CHECK(pair.a.channel->queued() == 0);
    }
  }
  WHEN("the channel is closed right away") {
    bool is_done = false;
    pair.a.channel->close(5s, [&] { is_done = true; });
    pair.a.channel.reset();
    REQUIRE(pair.loop.until([&] { return is_done && !pair.b.closed.empty(); }));
    THEN("all is sent before the end") {
      CHECK(pair.b.frames.size() == 21);
      CHECK(pair.b.closed.at(0).cause == Cause::ended);
      CHECK(pair.a.closed.empty());
    }
  }
}

SCENARIO("both sides close at once", "[rendezvous][channel]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Pair pair{is_tls};
  int done = 0;
  pair.a.channel->send(heartbeat());
  pair.b.channel->send(heartbeat());
  pair.a.channel->close(5s, [&] { ++done; });
  pair.b.channel->close(5s, [&] { ++done; });
  CHECK(pair.loop.until([&] { return done == 2; }, 2s));
  CHECK(pair.a.closed.empty());
  CHECK(pair.b.closed.empty());
}

TEST_CASE("closing waits no longer than it may", "[rendezvous][channel]") {
  Half half;
  bool is_done = false;
  half.seen.channel->send(notice(250'000));
  half.seen.channel->send(notice(250'000));
  half.seen.channel->close(100ms, [&] { is_done = true; });
  half.seen.channel.reset();  // it keeps itself alive
  CHECK(half.loop.until([&] { return is_done; }, 2s));
}

TEST_CASE("a dropped channel closes at once and calls nothing", "[rendezvous][channel]") {
  Pair pair{GENERATE(false, true)};
  pair.b.channel->send(heartbeat());
  pair.a.channel.reset();
  CHECK(pair.loop.until([&] { return !pair.b.closed.empty(); }));
  CHECK(pair.a.frames.empty());
  CHECK(pair.a.closed.empty());
}

SCENARIO("handlers that change the channel under their feet", "[rendezvous][channel]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Pair pair{is_tls};
  WHEN("the first frame's handler installs another one") {
    Seen later;
    pair.b.channel->start(
        {.on_open = {},
         .on_frame = [&](std::string_view) { pair.b.channel->start(later.handlers()); },
         .on_closed = {}});
    pair.a.channel->send(heartbeat(1) + heartbeat(2) + heartbeat(3));
    pair.a.channel->close();
    REQUIRE(pair.loop.until([&] { return !later.closed.empty(); }));
    THEN("the rest goes there, also what came in the same read") {
      CHECK(later.frames == std::vector{heartbeat(2), heartbeat(3)});
    }
  }
  WHEN("a handler closes the channel between two frames") {
    int seen = 0;
    bool is_done = false;
    pair.b.channel->start({.on_open = {},
                           .on_frame =
                               [&](std::string_view) {
                                 ++seen;
                                 pair.b.channel->send(heartbeat(7));
                                 pair.b.channel->close(2s, [&] { is_done = true; });
                               },
                           .on_closed = [&](const Closed&) { seen += 100; }});
    pair.a.channel->send(heartbeat(1) + heartbeat(2));
    REQUIRE(pair.loop.until([&] { return is_done && !pair.a.closed.empty(); }));
    THEN("no further one is delivered, and the answer still goes out") {
      CHECK(seen == 1);
      CHECK(pair.a.frames == std::vector{heartbeat(7)});
    }
  }
  WHEN("a handler drops the channel") {
    int seen = 0;
    pair.b.channel->start({.on_open = {},
                           .on_frame =
                               [&](std::string_view) {
                                 ++seen;
                                 pair.b.channel.reset();
                               },
                           .on_closed = [&](const Closed&) { seen += 100; }});
    pair.a.channel->send(heartbeat(1) + heartbeat(2));
    REQUIRE(pair.loop.until([&] { return !pair.a.closed.empty(); }));
    THEN("nothing more is called once the frames of that read are through") {
      CHECK(seen < 100);
      CHECK(pair.b.channel == nullptr);
    }
  }
}

SCENARIO("the other side takes nothing", "[rendezvous][channel]") {
  GIVEN("a short patience") {
    Half half{{.slow_reader = 100ms}};
    for (int i = 0; i < 4; ++i) half.seen.channel->send(notice(250'000));
    REQUIRE(half.seen.channel->queued() > 0);
    THEN("it is dropped, and only then") {
      CHECK(half.seen.closed.empty());
      CHECK(half.is_closed_by(Cause::slow_reader));
      CHECK_THAT(half.seen.closed.at(0).what, Contains("took nothing for 100 ms"));
    }
  }
  GIVEN("a short queue") {
    Half half{{.queued = 1'000'000}};
    int taken = 0;
    while (half.seen.channel->send(notice(250'000))) REQUIRE(++taken < 20);
    THEN("the queue never grows beyond it") {
      CHECK(half.is_closed_by(Cause::slow_reader));
      CHECK(half.seen.channel->queued() == 0);
      CHECK_FALSE(half.seen.channel->send(heartbeat()));
    }
  }
  GIVEN("one who reads a little all the time") {
    // The kernel calls the socket writable once most of its buffer is read, after some 80 ms here.
    const Millis patience{1'500};
    Half half{{.slow_reader = patience}};
    THEN("it is kept, however long it takes") {
      std::vector<char> buffer(50'000);
      Instant next = clock_now();
      const auto read_some = [&] {
        if (half.seen.channel->queued() < 500'000) half.seen.channel->send(notice(250'000));
        if (clock_now() >= next) {
          next = clock_now() + 20ms;
          ::recv(half.other.get(), buffer.data(), buffer.size(), 0);
        }
        return !half.seen.closed.empty();
      };
      CHECK_FALSE(half.loop.until(read_some, 2 * patience));
      CHECK(half.seen.channel->queued() > 0);
    }
  }
}

SCENARIO("a frame that never ends", "[rendezvous][channel]") {
  Half half{{.frame = 150ms}};
  half.say(heartbeat());
  REQUIRE(half.loop.until([&] { return half.seen.frames.size() == 1; }));
  WHEN("nothing is owed") {
    half.loop.until([] { return false; }, 300ms);
    THEN("silence is allowed") { CHECK(half.seen.closed.empty()); }
  }
  WHEN("a frame is begun, and goes on by a byte now and then") {
    const auto frame = notice(1000);
    std::size_t sent = 0;
    auto next = std::chrono::steady_clock::now();
    half.loop.until([&] {
      if (std::chrono::steady_clock::now() >= next && half.seen.closed.empty()) {
        next += 10ms;
        ::send(half.other.get(), &frame[sent++], 1, MSG_NOSIGNAL);  // it may be gone already
      }
      return !half.seen.closed.empty();
    });
    THEN("the whole frame has its time, not each byte") {
      CHECK(half.is_closed_by(Cause::slow_frame));
      CHECK(sent < frame.size());
    }
  }
}

SCENARIO("bytes that are no frames", "[rendezvous][channel]") {
  Half half;
  WHEN("a frame claims 4 GiB") {
    half.say("\xff\xff\xff\xff" + std::string(60, 'x'));
    CHECK(half.is_closed_by(Cause::malformed));
  }
  WHEN("the first frame is larger than a first one may be") {
    half.say(notice(kMaxFirstFrame).substr(0, 4000));
    CHECK(half.is_closed_by(Cause::malformed));
    CHECK(half.seen.frames.empty());
  }
  WHEN("a later one is as large") {
    half.say(heartbeat() + notice(kMaxFirstFrame));
    CHECK(half.loop.until([&] { return half.seen.frames.size() == 2; }));
  }
  WHEN("it is HTTP") {
    half.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(half.is_closed_by(Cause::not_ours));
  }
  WHEN("it is TLS") {
    half.say(std::string{"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03", 11});
    CHECK(half.is_closed_by(Cause::needs_secret));
    char answer[16] = {};
    CHECK(::recv(half.other.get(), answer, sizeof answer, 0) == 7);
    CHECK(std::string_view(answer, 7) == kAlertNoTls);
  }
  WHEN("the other side ends in the middle of a frame") {
    half.say(heartbeat().substr(0, 10));
    half.other.reset();
    CHECK(half.is_closed_by(Cause::ended));
    CHECK_THAT(half.seen.closed.at(0).what, Contains("in the middle of a frame"));
  }
}

TEST_CASE("who sends too many frames is read more slowly, and loses none",
          "[rendezvous][channel][timing]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Pair pair{is_tls, {}, {.frames_per_second = 2000}};
  const auto began = std::chrono::steady_clock::now();
  constexpr std::uint32_t kFrames = 6000;
  for (std::uint32_t i = 0; i < kFrames; ++i) REQUIRE(pair.a.channel->send(heartbeat(i)));
  REQUIRE(pair.loop.until([&] { return pair.b.frames.size() == kFrames; }, 10s));
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(pair.b.frames.back() == heartbeat(kFrames - 1));
  // 2000 at once, one read of 64 KiB beyond that, the rest at 2000 a second.
  CHECK(took > 500ms);
  CHECK(took < 6s);
}

TEST_CASE("frames that the owner expects are read at once", "[rendezvous][channel]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Pair pair{is_tls, {}, {.frames_per_second = 10}};
  constexpr std::uint32_t kFrames = 5000;  // they would take eight minutes
  pair.b.channel->allow_frames(kFrames);
  for (std::uint32_t i = 0; i < kFrames; ++i) REQUIRE(pair.a.channel->send(heartbeat(i)));
  REQUIRE(pair.loop.until([&] { return pair.b.frames.size() == kFrames; }, 30s));
  // The rate counts again: ten, and what one read overdraws.
  std::string more;
  for (std::uint32_t i = 0; i < 40; ++i) more += heartbeat(i);
  REQUIRE(pair.a.channel->send(more));
  REQUIRE(pair.loop.until([&] { return pair.b.frames.size() == kFrames + 40; }));
  pair.a.channel->send(heartbeat());
  CHECK_FALSE(pair.loop.until([&] { return pair.b.frames.size() > kFrames + 40; }, 200ms));
}

TEST_CASE("a queue that the owner allowed for is no slow reader's", "[rendezvous][channel]") {
  Pair pair{false, {.queued = std::size_t{1} << 20U}};
  pair.a.channel->send(heartbeat());
  REQUIRE(pair.loop.until([&] { return !pair.b.frames.empty(); }));
  const auto frame = notice(200'000);
  pair.a.channel->allow_queued(50 * frame.size());
  for (int i = 0; i < 50; ++i) REQUIRE(pair.a.channel->send(frame));
  SECTION("all of it arrives") {
    REQUIRE(pair.loop.until([&] { return pair.b.frames.size() == 51; }));
    CHECK(pair.a.channel->is_open());
  }
  SECTION("a queue beyond that is too much") {
    int more = 0;
    while (more < 50 && pair.a.channel->send(frame)) ++more;
    CHECK(more < 10);
    CHECK_FALSE(pair.a.channel->is_open());
  }
}

TEST_CASE("TLS bytes that were changed on the way end the channel", "[rendezvous][channel]") {
  Loop loop;
  auto [client, to_server] = socket_pair();
  auto [server, to_client] = socket_pair();
  Seen a;
  Seen b;
  a.channel = std::make_shared<Channel>(loop.io, std::move(client),
                                        TlsContext::for_dialling(secret(), "job"));
  b.channel =
      std::make_shared<Channel>(loop.io, std::move(server), TlsContext::for_listening(secret()));
  a.channel->start(a.handlers());
  b.channel->start(b.handlers());
  bool is_forging = false;
  const auto relay = [&] {
    char buffer[4096];
    if (const auto n = ::recv(to_server.get(), buffer, sizeof buffer, 0); n > 0) {
      if (is_forging) buffer[n - 1] = static_cast<char>(buffer[n - 1] ^ 1);
      ::send(to_client.get(), buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL);
    }
    if (const auto n = ::recv(to_client.get(), buffer, sizeof buffer, 0); n > 0)
      ::send(to_server.get(), buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL);
  };
  REQUIRE(loop.until([&] {
    relay();
    return a.is_open && b.is_open;
  }));
  is_forging = true;
  a.channel->send(heartbeat());
  REQUIRE(loop.until([&] {
    relay();
    return !b.closed.empty();
  }));
  CHECK(b.frames.empty());
  CHECK(b.closed.at(0).cause == Cause::malformed);
}
