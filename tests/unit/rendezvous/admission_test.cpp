#include "rendezvous/admission.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using namespace std::chrono_literals;

namespace {
const Instant kStart = Instant{} + 1h;
}

SCENARIO("more connections than may be half open", "[rendezvous][admission]") {
  Admission admission{{.half_open = 3, .half_open_per_source = 2}};
  GIVEN("two of one source and one of another") {
    REQUIRE_FALSE(admission.accepted(1, "a", kStart).instead);
    REQUIRE_FALSE(admission.accepted(2, "b", kStart).instead);
    REQUIRE_FALSE(admission.accepted(3, "a", kStart).instead);
    WHEN("the same source comes again") {
      const auto verdict = admission.accepted(4, "a", kStart);
      THEN("its own oldest goes, nobody else's") {
        CHECK(verdict.is_trusted);
        CHECK(verdict.instead == ConnectionId{1});
      }
    }
    WHEN("a third source comes") {
      THEN("the oldest of all goes") {
        CHECK(admission.accepted(4, "c", kStart).instead == ConnectionId{1});
      }
    }
    WHEN("one of them names a key") {
      REQUIRE_FALSE(admission.named(1));
      THEN("strangers behind the same address don't evict it") {
        for (ConnectionId id = 4; id < 100; ++id) {
          const auto verdict = admission.accepted(id, "a", kStart);
          CHECK(verdict.instead != ConnectionId{1});
          if (verdict.instead) admission.failed(*verdict.instead, kStart);
        }
        CHECK(admission.half_open() <= 4);
      }
    }
    WHEN("one of them proves itself") {
      admission.passed(2);
      THEN("there is room again") { CHECK_FALSE(admission.accepted(4, "c", kStart).instead); }
    }
  }
}

SCENARIO("too many connections of one source name a key", "[rendezvous][admission]") {
  Admission admission{{.half_open = 100, .half_open_per_source = 2}};
  for (ConnectionId id = 1; id <= 3; ++id) admission.accepted(id, "a", kStart);
  CHECK_FALSE(admission.named(1));
  CHECK_FALSE(admission.named(2));
  THEN("its oldest goes: to name one is no proof") { CHECK(admission.named(3) == ConnectionId{1}); }
}

TEST_CASE("with as many as may be, one that names a key goes last", "[rendezvous][admission]") {
  Admission admission{{.half_open = 3, .half_open_per_source = 3}};
  for (ConnectionId id = 1; id <= 3; ++id) admission.accepted(id, "source " + std::to_string(id), kStart);
  CHECK_FALSE(admission.named(1));
  CHECK(admission.accepted(4, "b", kStart).instead == ConnectionId{2});
  admission.failed(2, kStart);
  CHECK_FALSE(admission.named(3));
  CHECK_FALSE(admission.named(4));
  CHECK(admission.accepted(5, "c", kStart).instead == ConnectionId{1});
}

SCENARIO("who is not through in time", "[rendezvous][admission]") {
  Admission admission{{.greeting = 5s}};
  CHECK_FALSE(admission.next_due());
  admission.accepted(1, "a", kStart);
  admission.accepted(2, "b", kStart + 1s);
  CHECK(admission.next_due() == kStart + 5s);
  CHECK_FALSE(admission.overdue(kStart + 5s - 1ms));
  CHECK(admission.overdue(kStart + 5s) == ConnectionId{1});
  admission.failed(1, kStart + 5s);
  CHECK_FALSE(admission.overdue(kStart + 5s));
  CHECK(admission.next_due() == kStart + 6s);
}

SCENARIO("a source fails over and over", "[rendezvous][admission]") {
  Admission admission{{.failures_per_second = 20, .penalty = 1s}};
  ConnectionId id = 0;
  const auto fail = [&](const std::string& source, Instant now) {
    const bool is_trusted = admission.accepted(++id, source, now).is_trusted;
    is_trusted ? (void)admission.failed(id, now) : admission.dismissed(id);
    return is_trusted;
  };
  GIVEN("20 failures at once") {
    for (int i = 0; i < 20; ++i) REQUIRE(fail("a", kStart));
    THEN("the 21st makes it wait for a second; others don't") {
      REQUIRE(fail("a", kStart));
      CHECK_FALSE(fail("a", kStart));
      CHECK_FALSE(fail("a", kStart + 999ms));
      CHECK(fail("b", kStart));
      CHECK(fail("a", kStart + 1s));
    }
    THEN("a flood of many more is forgotten as quickly") {
      for (int i = 0; i < 10'000; ++i) fail("a", kStart);
      CHECK(fail("a", kStart + 1s));
      CHECK(fail("a", kStart + 1s));
    }
    THEN("half a second later ten more are free") {
      for (int i = 0; i < 11; ++i) CHECK(fail("a", kStart + 500ms));
      CHECK_FALSE(fail("a", kStart + 500ms));
    }
  }
  GIVEN("a fourth of that rate for an hour") {
    bool may_try = true;
    for (int i = 0; i < 3600 * 5; ++i) may_try = may_try && fail("a", kStart + i * 200ms);
    THEN("it is never made to wait") { CHECK(may_try); }
  }
}

SCENARIO("the log is not a weapon", "[rendezvous][admission]") {
  Admission admission{{.failures_per_second = 1'000'000, .log_every = 1min, .log_lines = 2}};
  ConnectionId id = 0;
  const auto fail = [&](const std::string& source, Instant now) {
    admission.accepted(++id, source, now);
    return admission.failed(id, now);
  };
  THEN("a source has one line a minute, that counts the rest") {
    CHECK(fail("a", kStart) == 1U);
    for (int i = 0; i < 99; ++i) CHECK_FALSE(fail("a", kStart + 30s));
    CHECK(fail("a", kStart + 60s) == 100U);
  }
  THEN("many sources share a few lines a minute") {
    CHECK(fail("a", kStart));
    CHECK(fail("b", kStart));
    CHECK_FALSE(fail("c", kStart));
    CHECK(fail("c", kStart + 1min) == 2U);
  }
  THEN("running out of descriptors has its own") {
    CHECK(admission.no_descriptors(kStart) == 1U);
    CHECK_FALSE(admission.no_descriptors(kStart + 1s));
    CHECK(admission.no_descriptors(kStart + 1min) == 2U);
  }
}

TEST_CASE("a million sources cost no more than a few thousand", "[rendezvous][admission]") {
  Admission admission{{.half_open = 8, .sources = 100}};
  for (ConnectionId id = 1; id <= 20'000; ++id) {
    const auto now = kStart + std::chrono::milliseconds{id};
    const auto verdict = admission.accepted(id, "source " + std::to_string(id), now);
    if (verdict.instead) admission.failed(*verdict.instead, now);
    REQUIRE(admission.sources() <= 101);
    REQUIRE(admission.half_open() <= 8);
  }
}

TEST_CASE("who proves itself leaves no trace", "[rendezvous][admission]") {
  Admission admission;
  for (ConnectionId id = 1; id <= 1000; ++id) {
    admission.accepted(id, "source " + std::to_string(id), kStart);
    admission.passed(id);
  }
  CHECK(admission.sources() == 0);
  CHECK(admission.half_open() == 0);
}

TEST_CASE("a host's IPv6 addresses are one source", "[rendezvous][admission]") {
  CHECK(source_of("10.0.0.7") == "10.0.0.7");
  CHECK(source_of("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64");
  CHECK(source_of("2001:db8:1:2::9") == source_of("2001:db8:1:2:ffff::1"));
  CHECK(source_of("fe80::1%eth0") == "fe80::/64");
  CHECK(source_of("::1") == "::/64");
}
