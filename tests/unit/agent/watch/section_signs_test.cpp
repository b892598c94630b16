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
  std::optional<Instant> risen{};  ///< the last time
  Instant now{};
  SectionSigns signs{{[this] { ++number; },
                      [this](auto done) {
                        if (is_answered_later) return void(open = std::move(done));
                        done(is_reached ? SectionSigns::Count{number} : std::nullopt);
                      }},
                     [this](bool has_risen) {
                       if (has_risen) risen = now;
                     }};
  explicit SignNode(std::int64_t& number_of_all) : number{number_of_all} { signs.begin_round(); }

  void look(Instant at, bool is_in_section, bool is_any_waiting) {
    now = at;
    HangDetector::Look look;
    if (is_in_section) look.in_section.push_back(LocalRank{0});
    look.is_any_waiting = is_any_waiting;
    signs.note(look, kMayBeSilent, at);
  }
  [[nodiscard]] bool is_known() const { return signs.is_known(kMayBeSilent, now); }
};

}  // namespace

TEST_CASE("a healthy job was ended as a rank of another node saved", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode saving{number};
  SignNode waiting{number};
  for (int second = 0; second <= 40; ++second) {
    saving.look(kFirstLook + second * 1s, true, false);
    waiting.look(kFirstLook + second * 1s, false, second >= 4);
    if (second >= 8) {
      INFO(second);
      CHECK(waiting.risen.value() >= waiting.now - 4s);
      CHECK(waiting.is_known());
    }
  }
  // It has left the section, and waits as well: the nodes' times begin at nearly the same moment.
  for (int second = 41; second < 60; ++second) {
    saving.look(kFirstLook + second * 1s, false, second >= 44);
    waiting.look(kFirstLook + second * 1s, false, true);
  }
  CHECK(waiting.risen.value() >= kFirstLook + 38s);
  CHECK(waiting.risen.value() <= kFirstLook + 43s);
  CHECK_FALSE(saving.risen);
  CHECK(waiting.is_known());
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
  CHECK_FALSE(waiting.risen);
  CHECK(waiting.is_known());
}

TEST_CASE("a section of this node is no other node's", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode node{number};
  for (int second = 0; second < 16; ++second)
    node.look(kFirstLook + second * 1s, true, second >= 4);
  CHECK(number > 4);
  CHECK_FALSE(node.risen);
}

TEST_CASE("signs are few, and end with the section", "[agent][hang]") {
  std::int64_t number = 0;
  SignNode saving{number};
  for (int second = 0; second < 3'600; ++second)
    saving.look(kFirstLook + second * 1s, second < 1'800, false);
  CHECK(number >= 1'800 / 3 - 1);
  CHECK(number <= 1'800 / 2);
}

TEST_CASE("a healthy job was ended as the coordinator was silent when ranks were to be judged",
          "[agent][hang]") {
  std::int64_t number = 0;
  SignNode waiting{number};
  for (int second = 4; second < 8; ++second) waiting.look(kFirstLook + second * 1s, false, true);
  CHECK(waiting.is_known());
  waiting.is_reached = false;
  for (int second = 8; second < 16; ++second) waiting.look(kFirstLook + second * 1s, false, true);
  waiting.look(kFirstLook + 16s, false, true);
  CHECK_FALSE(waiting.is_known());
  SECTION("it answers again") {
    ++number;
    waiting.is_reached = true;
    waiting.look(kFirstLook + 18s, false, true);
    CHECK(waiting.is_known());
    CHECK(waiting.risen == kFirstLook + 18s);
  }
  SECTION("it never does: a hang is told all the same") {
    waiting.look(kFirstLook + 40s, false, true);
    CHECK(waiting.is_known());
  }
}

TEST_CASE("an answer of the round before counts for nothing", "[agent][hang]") {
  std::int64_t number = 3;
  SignNode waiting{number};
  waiting.is_answered_later = true;
  waiting.look(kFirstLook, false, true);
  const auto late = std::exchange(waiting.open, nullptr);
  waiting.signs.begin_round();
  waiting.look(kFirstLook + 1s, false, true);
  late(SectionSigns::Count{3});
  CHECK_FALSE(waiting.is_known());
  waiting.open(SectionSigns::Count{0});
  CHECK(waiting.is_known());
}
