#include "rendezvous/answered_requests.hpp"

#include <catch2/catch.hpp>

using namespace acc::rendezvous;

namespace {

using Status = KvReply::Status;

const NodeId kAsker{"a", 1};

KvReply numbered_reply(std::uint64_t id, std::int64_t number = 0, Status status = Status::ok,
                       std::string value = {}) {
  KvReply reply;
  reply.id = id;
  reply.number = number;
  reply.status = status;
  reply.value = std::move(value);
  return reply;
}

}  // namespace

TEST_CASE("what was answered already gets the same reply again", "[rendezvous][kv]") {
  AnsweredRequests answered;
  answered.note(kAsker, 2, numbered_reply(7, 42));
  answered.note(kAsker, 2, numbered_reply(5, 3, Status::timed_out));  // a barrier
  const auto add = answered.find(kAsker, 7);
  REQUIRE(add);
  CHECK(add->id == 7);
  CHECK(add->number == 42);
  CHECK(add->status == Status::ok);
  const auto barrier = answered.find(kAsker, 5);
  REQUIRE(barrier);
  CHECK(barrier->number == 3);
  CHECK(barrier->status == Status::timed_out);
  SECTION("but not one of another agent, on another node or started again on this one") {
    CHECK_FALSE(answered.find({"b", 1}, 7));
    CHECK_FALSE(answered.find({"a", 2}, 7));
    answered.note({"a", 2}, 2, numbered_reply(1));
    CHECK_FALSE(answered.find({"a", 2}, 7));
    CHECK_FALSE(answered.find(kAsker, 7));
  }
  SECTION("nor one that is new, or waits") {
    CHECK_FALSE(answered.find(kAsker, 8));
    CHECK_FALSE(answered.find(kAsker, 6));
  }
  SECTION("nor one of the last round") {
    answered.forget();
    CHECK_FALSE(answered.find(kAsker, 7));
  }
}

TEST_CASE("what changed nothing is carried out again", "[rendezvous][kv]") {
  AnsweredRequests answered;
  answered.note(kAsker, 1, numbered_reply(1, 0, Status::ok, "value"));
  answered.note(kAsker, 1, numbered_reply(2, 0, Status::differs, "value"));
  answered.note(kAsker, 1, numbered_reply(3, 0, Status::missing));
  answered.note(kAsker, 1, numbered_reply(4, 0, Status::full));
  answered.note(kAsker, 1, numbered_reply(5, 0, Status::wrong_round));
  answered.note(kAsker, 1, numbered_reply(6));
  for (std::uint64_t id = 1; id < 6; ++id) CHECK_FALSE(answered.find(kAsker, id));
  CHECK(answered.find(kAsker, 6));
}

TEST_CASE("of each agent a few replies for each worker are kept", "[rendezvous][kv]") {
  const std::size_t workers = GENERATE(0, 8, 1'000'000);
  const std::uint64_t kept = workers == 0 ? 64 : workers == 8 ? 96 : 4096;
  AnsweredRequests answered;
  for (std::uint64_t id = 1; id <= 10'000; ++id) {
    answered.note(kAsker, workers, numbered_reply(id, static_cast<std::int64_t>(id)));
  }
  CHECK(answered.find(kAsker, 10'000 - kept + 1)->number ==
        static_cast<std::int64_t>(10'000 - kept + 1));
  CHECK(answered.find(kAsker, 10'000)->number == 10'000);
  CHECK_FALSE(answered.find(kAsker, 10'000 - kept));
}
