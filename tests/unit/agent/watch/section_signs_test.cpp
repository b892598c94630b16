#include "agent/watch/section_signs.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <optional>
#include <utility>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;

namespace {

const Instant kFirstLook{1000s};
constexpr Millis kMayBeSilent{16'000};

/// A node, whose coordinator counts what all give.
struct SignNode {
  std::int64_t& number;
  bool is_reached = true;
  std::function<void(SectionSigns::Count)> open{};  ///< a question without its answer yet
  bool is_answered_later = false;
  SectionSigns signs{{[this] { ++number; },
                      [this](auto done) {
                        if (is_answered_later) return void(open = std::move(done));
                        done(is_reached ? SectionSigns::Count{number} : std::nullopt);
                      }}};
  explicit SignNode(std::int64_t& number_of_all) : number{number_of_all} { signs.begin_round(); }

  void look(Instant now, bool holds_others, bool is_any_waiting) {
    HangDetector::Look look;
    look.holds_others = holds_others;
    look.is_any_waiting = is_any_waiting;
    signs.note(look, kMayBeSilent, now);
  }
  bool is_held() {
    std::optional<bool> told;
    signs.ask([&](bool is_held) { told = is_held; });
    return told.value();
  }
};

}  // namespace

TEST_CASE("a healthy job was ended as a rank of another node saved", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode saving{number};
  SignNode waiting{number};
  for (int second = 0; second < 40; ++second) {
    const Instant now = kFirstLook + second * 1s;
    saving.look(now, true, false);
    waiting.look(now, false, second % 16 >= 4);
    if (second % 16 == 15) CHECK(waiting.is_held());
  }
  // It has left the section, and hangs.
  for (int second = 40; second < 56; ++second) {
    const Instant now = kFirstLook + second * 1s;
    saving.look(now, false, second >= 44);
    waiting.look(now, false, second >= 44);
  }
  CHECK_FALSE(waiting.is_held());
}

TEST_CASE("a section of another node that was over before the silence began holds nobody",
          "[agent][hang]") {
  std::int64_t number = 0;
  SignNode saving{number};
  SignNode waiting{number};
  saving.look(kFirstLook, true, false);
  waiting.look(kFirstLook, false, false);
  for (int second = 1; second < 16; ++second)
    waiting.look(kFirstLook + second * 1s, false, second >= 4);
  CHECK_FALSE(waiting.is_held());
}

TEST_CASE("a section of this node is no other node's", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode node{number};
  for (int second = 0; second < 16; ++second)
    node.look(kFirstLook + second * 1s, true, second >= 4);
  CHECK(number > 4);
  CHECK_FALSE(node.is_held());
}

TEST_CASE("signs are few, and end with the section", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode saving{number};
  for (int second = 0; second < 3'600; ++second)
    saving.look(kFirstLook + second * 1s, second < 1'800, false);
  CHECK(number >= 1'800 / 3 - 1);
  CHECK(number <= 1'800 / 2);
}

TEST_CASE("without the coordinator's answer nobody is held", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode waiting{number};
  waiting.is_reached = false;
  waiting.look(kFirstLook, false, true);
  number = 5;
  waiting.is_reached = true;
  CHECK_FALSE(waiting.is_held());  // it doesn't know how many there were
  number = 6;
  waiting.is_reached = false;
  CHECK_FALSE(waiting.is_held());
}

TEST_CASE("an answer of the round before counts for nothing", "[agent][hang]") {
  std::int64_t number = 3;
  SignNode waiting{number};
  waiting.is_answered_later = true;
  waiting.look(kFirstLook, false, true);
  const auto late = std::exchange(waiting.open, nullptr);
  waiting.signs.begin_round();
  waiting.is_answered_later = false;
  late(SectionSigns::Count{3});
  number = 0;
  CHECK_FALSE(waiting.is_held());
}
