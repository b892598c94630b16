#include "agent/watch/shared_step.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <optional>
#include <string>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;

namespace {

const Instant kStepBegin{1000s};

/// What is in the store of the round.
struct StepStore {
  std::string value{};
  int messages = 0;
  bool is_reached = true;
  SharedStep::Exchange exchange() {
    return [this](const std::string& expected, const std::string& wanted,
                  const SharedStep::Answer& answer) {
      ++messages;
      if (!is_reached) return answer(std::nullopt);
      if (value == expected) value = wanted;
      answer(value);
    };
  }
};

struct StepNode {
  std::optional<Millis> longer{};
  SharedStep shared;
  explicit StepNode(StepStore& store)
      : shared{store.exchange(), [this](Millis step) { longer = step; }} {
    shared.begin_round();
  }
};

}  // namespace

TEST_CASE("with --hang_timeout auto the node with the shortest steps blamed its own rank",
          "[agent][hang]") {
  StepStore store;
  StepNode slow{store};
  StepNode quick{store};
  slow.shared.note(Millis{11'000}, false, kStepBegin);
  CHECK(store.value == "11000");
  quick.shared.note(Millis{1'000}, true, kStepBegin);  // it knows of none yet
  quick.shared.note(Millis{1'000}, true, kStepBegin + 2s);
  CHECK(quick.longer == Millis{11'000});
  CHECK(store.value == "11000");
  CHECK_FALSE(slow.longer);
}

TEST_CASE("the longest step is written when it has grown, and read while ranks are silent",
          "[agent][hang]") {
  StepStore store;
  StepNode node{store};
  for (int second = 0; second < 100; ++second)
    node.shared.note(Millis{1'000 + second / 2}, false, kStepBegin + second * 1s);
  CHECK(store.messages == 1);
  node.shared.note(Millis{2'000}, false, kStepBegin + 100s);
  CHECK(store.value == "2000");
  CHECK(store.messages == 2);
  for (int second = 0; second < 10; ++second)
    node.shared.note(Millis{2'000}, true, kStepBegin + 102s + second * 1s);
  CHECK(store.messages == 7);
}

TEST_CASE("a step of the round before, or no answer, changes nothing", "[agent][hang]") {
  StepStore store;
  store.is_reached = false;
  StepNode node{store};
  node.shared.note(Millis{1'000}, true, kStepBegin);
  CHECK_FALSE(node.longer);
  store.is_reached = true;
  node.shared.note(Millis{1'000}, false, kStepBegin + 2s);
  CHECK(store.value == "1000");
  store.value.clear();  // a new round
  node.shared.begin_round();
  node.shared.note(Millis{1'000}, false, kStepBegin + 3s);
  CHECK(store.value == "1000");
}
