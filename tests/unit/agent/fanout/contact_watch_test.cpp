#include "agent/fanout/contact_watch.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;

namespace {

constexpr Instant kBegin{};

}  // namespace

TEST_CASE("over ssh a host that stopped answering is noticed after 15 s", "[agent][fanout]") {
  ContactWatch watch{kBegin};
  CHECK(watch.look(kBegin + 5s, kBegin + 1s, false).asks);
  CHECK_FALSE(watch.look(kBegin + 10s, kBegin + 1s, false).silent_since);
  CHECK_FALSE(watch.look(kBegin + 15s, kBegin + 1s, false).silent_since);
  CHECK(watch.look(kBegin + 20s, kBegin + 1s, false).silent_since == kBegin + 1s);
  watch.answered();
  CHECK_FALSE(watch.look(kBegin + 25s, kBegin + 24s, false).silent_since);
}

TEST_CASE("a host is asked anew only after it answered", "[agent][fanout]") {
  ContactWatch watch{kBegin};
  CHECK(watch.look(kBegin + 5s, kBegin, false).asks);
  CHECK_FALSE(watch.look(kBegin + 10s, kBegin, false).asks);
  watch.answered();
  CHECK(watch.look(kBegin + 15s, kBegin + 11s, false).asks);
}

TEST_CASE("a host isn't silent because our own terminal or process stood still",
          "[agent][fanout]") {
  ContactWatch watch{kBegin};
  for (int i = 1; i < 20; ++i)
    CHECK_FALSE(watch.look(kBegin + i * 5s, kBegin, true).silent_since);
  ContactWatch frozen{kBegin};
  CHECK_FALSE(frozen.look(kBegin + 60s, kBegin, false).silent_since);
  CHECK_FALSE(frozen.look(kBegin + 65s, kBegin, false).silent_since);
  CHECK(frozen.look(kBegin + 75s, kBegin, false).silent_since == kBegin + 60s);
}
