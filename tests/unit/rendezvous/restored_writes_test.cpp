#include "rendezvous/restored_writes.hpp"

#include <catch2/catch.hpp>

using namespace acc::rendezvous;

namespace {

const NodeId kNode{"a", 1};
const NodeId kOther{"b", 1};
const KvRestore kShare{"n", {}, 5};
const KvRestore kText{"k", "value", 0};

}  // namespace

TEST_CASE("a counter was too high after a replay whose link broke was repeated",
          "[rendezvous][kv]") {
  RestoredWrites restored;
  restored.begin(true);
  CHECK(restored.take(kNode, kText));
  CHECK(restored.take(kNode, kShare));
  CHECK(restored.is_expecting());
  // The next link: what the first one brought, and what it didn't.
  CHECK(restored.take(kNode, kText));
  CHECK_FALSE(restored.take(kNode, kShare));
  CHECK(restored.take(kNode, {"m", {}, 1}));
  SECTION("another node's share of the same counter counts") {
    CHECK(restored.take(kOther, kShare));
  }
  SECTION("an agent that was started again has shares of its own") {
    CHECK(restored.take({"a", 2}, kShare));
  }
  SECTION("once a node has told all, the store has seen whatever it may repeat") {
    restored.complete(kNode);
    CHECK(restored.is_complete(kNode));
    CHECK_FALSE(restored.take(kNode, {"later", {}, 1}));  // added under this coordinator
    CHECK_FALSE(restored.take(kNode, kText));
    CHECK(restored.take(kOther, kShare));
    CHECK_FALSE(restored.is_complete({"a", 2}));
  }
}

TEST_CASE("the store of a round that began here is never restored", "[rendezvous][kv]") {
  RestoredWrites restored;
  CHECK_FALSE(restored.take(kNode, kShare));
  restored.begin(true);
  CHECK(restored.take(kNode, kShare));
  restored.begin(false);  // the next round; the agent still told of the last one
  CHECK_FALSE(restored.take(kNode, kShare));
  CHECK_FALSE(restored.is_expecting());
}
