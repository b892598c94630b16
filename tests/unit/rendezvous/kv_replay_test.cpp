#include "rendezvous/kv_replay.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::rendezvous;

namespace {

using Op = KvRequest::Op;
using Status = KvReply::Status;

KvRequest request(Op op, std::string key, std::string value = {}, std::int64_t delta = 0) {
  KvRequest r;
  r.op = op;
  r.key = std::move(key);
  r.value = std::move(value);
  r.delta = delta;
  return r;
}
KvReply reply(Status status) {
  KvReply r;
  r.status = status;
  return r;
}

using Texts = std::vector<std::string>;
/// "key=value" or "key+added".
Texts told_by(const KvReplay& share) {
  Texts texts;
  for (const auto& one : share.tell())
    texts.push_back(one.key + (one.added != 0 ? "+" + std::to_string(one.added) : "=" + one.value));
  return texts;
}

}  // namespace

TEST_CASE("only what the store took is told again", "[rendezvous][kv]") {
  KvReplay share;
  share.note(request(Op::set, "a", "1"), reply(Status::ok));
  share.note(request(Op::set, "b", "2"), reply(Status::full));
  share.note(request(Op::compare_set, "c", "3"), reply(Status::ok));
  share.note(request(Op::compare_set, "d", "4"), reply(Status::differs));
  share.note(request(Op::add, "n", "", 5), reply(Status::ok));
  share.note(request(Op::add, "n", "", 6), reply(Status::bad_request));
  share.note(request(Op::add, "n", "", -2), reply(Status::ok));
  share.note(request(Op::add, "zero", "", 0), reply(Status::ok));
  share.note(request(Op::get, "e"), reply(Status::ok));
  share.note(request(Op::barrier, "f"), reply(Status::ok));
  CHECK(told_by(share) == Texts{"a=1", "c=3", "n+3", "zero=0"});
  CHECK(share.is_complete());
  SECTION("a removed key isn't") {
    share.note(request(Op::remove, "a"), reply(Status::ok));
    share.note(request(Op::remove, "c"), reply(Status::missing));  // another node was faster
    share.note(request(Op::remove, "n"), reply(Status::full));
    CHECK(told_by(share) == Texts{"n+3", "zero=0"});
  }
  SECTION("nor anything of the last round") {
    share.forget();
    CHECK(share.tell().empty());
    CHECK(share.bytes() == 0);
  }
}

TEST_CASE("a value and what was added to it since are told apart", "[rendezvous][kv]") {
  KvReplay share;
  share.note(request(Op::add, "n", "", 100), reply(Status::ok));
  share.note(request(Op::set, "n", "7"), reply(Status::ok));
  share.note(request(Op::add, "n", "", 3), reply(Status::ok));
  CHECK(told_by(share) == Texts{"n=7", "n+3"});
}

TEST_CASE("the memory is bounded, and says when it isn't whole", "[rendezvous][kv]") {
  KvReplay share{{.keys = 2, .bytes = 20, .waiters = 0}};
  share.note(request(Op::set, "a", std::string(10, 'x')), reply(Status::ok));
  CHECK(share.is_complete());
  SECTION("too many bytes: rather no value than an old one") {
    share.note(request(Op::set, "a", std::string(20, 'y')), reply(Status::ok));
    CHECK_FALSE(share.is_complete());
    CHECK(share.tell().empty());
    CHECK(share.bytes() == 0);
  }
  SECTION("too many keys") {
    share.note(request(Op::add, "b", "", 1), reply(Status::ok));
    share.note(request(Op::add, "c", "", 1), reply(Status::ok));
    CHECK_FALSE(share.is_complete());
    CHECK(share.tell().size() == 2);
  }
  SECTION("a counter out of range") {
    share.note(request(Op::add, "b", "", INT64_MAX), reply(Status::ok));
    share.note(request(Op::add, "b", "", 1), reply(Status::ok));
    CHECK_FALSE(share.is_complete());
  }
  share.forget();
  CHECK(share.is_complete());
}

// The law that the two together keep, as long as a key has one writer or is only added to.
TEST_CASE("after an election the store is what it was", "[rendezvous][kv]") {
  std::mt19937 random{20260101};  // NOLINT: the same cases each time
  for (int game = 0; game < 200; ++game) {
    KvStore before;
    std::vector<KvReplay> nodes(3);
    for (int step = 0; step < 60; ++step) {
      const auto node = random() % nodes.size();
      const auto own = "own/" + std::to_string(node) + '/' + std::to_string(random() % 3);
      const auto shared = "counter/" + std::to_string(random() % 3);
      const auto pick = random() % 8;
      KvRequest r;
      if (pick < 3) {
        r = request(Op::set, own, std::to_string(random() % 1000));
      } else if (pick == 3) {
        r = request(Op::remove, own);
      } else if (pick == 4) {
        r = request(Op::add, own, "", static_cast<std::int64_t>(random() % 9) - 4);
      } else {
        r = request(Op::add, shared, "", static_cast<std::int64_t>(random() % 9) - 4);
      }
      const auto answers = before.request(node, r, Instant{});
      REQUIRE(answers.size() == 1);
      nodes[node].note(r, answers[0].reply);
    }
    std::vector<KvRestore> told;
    for (const auto& node : nodes) {
      const auto one = node.tell();
      told.insert(told.end(), one.begin(), one.end());
    }
    std::shuffle(told.begin(), told.end(), random);
    KvStore after;
    for (const auto& one : told) after.restore(one);
    CHECK(after.keys() == before.keys());
    for (const auto& one : told) {
      const auto get = request(Op::get, one.key);
      INFO("game " << game << " key " << one.key);
      CHECK(after.request(0, get, Instant{}).at(0).reply.value ==
            before.request(0, get, Instant{}).at(0).reply.value);
    }
  }
}
