#include "agent/terminal_interrupts.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using acc::agent::TerminalInterrupts;
using Answer = TerminalInterrupts::Answer;

namespace acc::agent {
std::ostream& operator<<(std::ostream& out, TerminalInterrupts::Answer answer) {
  return out << (answer == Answer::none ? "none" : answer == Answer::hint ? "hint" : "stop");
}
}  // namespace acc::agent

namespace {

constexpr Instant kStart{std::chrono::hours{100}};

struct Keys {
  TerminalInterrupts interrupts;
  Instant now = kStart;
  Answer press(Millis after = Millis{0}) {
    now += after;
    return interrupts.press(now);
  }
  /// At the moment that was asked for.
  Answer look(bool is_reading) {
    if (!interrupts.due()) return Answer::none;
    now = *interrupts.due();
    return interrupts.look(now, is_reading);
  }
};

}  // namespace

SCENARIO("a worker that has the terminal doesn't heed Ctrl-C", "[agent][terminal]") {
  Keys keys;
  CHECK(keys.press() == Answer::none);
  CHECK(keys.look(false) == Answer::none);
  THEN("after two seconds the user learns what another one does, once") {
    CHECK(keys.look(false) == Answer::hint);
    CHECK(keys.now == kStart + Millis{2000});
    CHECK_FALSE(keys.interrupts.due());
  }
  THEN("a second one within seconds is meant for the job") {
    CHECK(keys.press(Millis{500}) == Answer::none);
    CHECK(keys.look(false) == Answer::stop);
    AND_THEN("each further one, too, at once") {
      CHECK(keys.press() == Answer::stop);
      CHECK(keys.press() == Answer::stop);
    }
  }
  THEN("one much later is a first one again") {
    keys.look(false);
    CHECK(keys.press(Millis{11'000}) == Answer::none);
    CHECK(keys.look(false) == Answer::none);
    CHECK(keys.look(false) == Answer::hint);
  }
}

SCENARIO("a debugger shows its prompt at each Ctrl-C", "[agent][terminal]") {
  Keys keys;
  for (int i = 0; i < 20; ++i) {
    CHECK(keys.press(Millis{100}) == Answer::none);
    CHECK(keys.look(true) == Answer::none);
    CHECK_FALSE(keys.interrupts.due());
  }
  THEN("what it did not heed before counts no more") {
    CHECK(keys.press() == Answer::none);
    CHECK(keys.look(false) == Answer::none);
    CHECK(keys.press() == Answer::none);
    CHECK(keys.look(true) == Answer::none);
    CHECK(keys.press() == Answer::none);
    CHECK(keys.look(false) == Answer::none);
  }
}

TEST_CASE("two presses within an eye's blink stop the job, if no prompt follows",
          "[agent][terminal]") {
  Keys keys;
  keys.press();
  keys.press(Millis{50});
  CHECK(keys.interrupts.look(keys.now, false) == Answer::none);  // not due yet
  CHECK(keys.look(false) == Answer::stop);
}

TEST_CASE("the next worker starts with no presses", "[agent][terminal]") {
  Keys keys;
  keys.press();
  keys.press();
  CHECK(keys.look(false) == Answer::stop);
  keys.interrupts.reset();
  CHECK(keys.press() == Answer::none);
  CHECK(keys.look(false) == Answer::none);
}
