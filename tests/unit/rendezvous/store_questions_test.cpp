#include "rendezvous/store_questions.hpp"

#include <catch2/catch.hpp>

namespace acc::rendezvous {
namespace {

using namespace std::chrono_literals;
using Op = KvRequest::Op;

constexpr Instant kAsked{100s};

struct Asking {
  std::vector<Message> sent;
  std::vector<KvReply> answers;
  StoreQuestions questions{[this](Message message) { sent.push_back(std::move(message)); }};

  void ask(Op op, std::string key = "k", std::string value = {}) {
    KvRequest request;
    request.op = op;
    request.key = std::move(key);
    request.value = std::move(value);
    request.timeout = 5s;
    questions.ask(
        std::move(request), [this](KvReply r) { answers.push_back(std::move(r)); }, kAsked);
  }
  [[nodiscard]] std::uint64_t last_id() const { return std::get<KvRequest>(sent.back()).id; }
  void answer(std::uint64_t id, Instant now, std::int64_t number = 0) {
    KvReply reply;
    reply.id = id;
    reply.number = number;
    questions.answered(std::move(reply), now);
  }
};

TEST_CASE("a question that no coordinator answered is asked again of the next one",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::get, "a");
  asking.ask(Op::get, "b");
  asking.answer(1, kAsked + 1s);
  REQUIRE(asking.answers.size() == 1);
  asking.sent.clear();
  asking.questions.ask_again();
  REQUIRE(asking.sent.size() == 1);
  CHECK(std::get<KvRequest>(asking.sent.front()).key == "b");
  asking.answer(2, kAsked + 2s);
  asking.answer(2, kAsked + 2s);  // of both coordinators
  CHECK(asking.answers.size() == 2);
}

TEST_CASE("a new round answers what is open with wrong_round and forgets the replay",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::set, "a", "1");
  asking.answer(1, kAsked);
  asking.ask(Op::wait, "b");
  asking.questions.end_round();
  REQUIRE(asking.answers.size() == 2);
  CHECK(asking.answers.back().status == KvReply::Status::wrong_round);
  const auto replay = asking.questions.take_replay(Term{2, 1});
  REQUIRE(replay);
  CHECK(replay->empty());
}

TEST_CASE("each coordinator gets what the workers put into the store, once",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::set, "a", "1");
  asking.answer(1, kAsked);
  const auto replay = asking.questions.take_replay(Term{2, 1});
  REQUIRE(replay);
  REQUIRE(replay->size() == 1);
  CHECK(replay->front().key == "a");
  CHECK(replay->front().value == "1");
  asking.questions.replay_arrived();
  CHECK_FALSE(asking.questions.take_replay(Term{2, 1}));  // its connection broke and came back
  CHECK(asking.questions.take_replay(Term{3, 2}));
}

TEST_CASE("the store lacked keys of a node whose link broke while it replayed them",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::set, "a", "1");
  asking.answer(1, kAsked);
  REQUIRE(asking.questions.take_replay(Term{2, 1}));
  // The next link to the same coordinator, and one to its successor.
  const auto again = asking.questions.take_replay(Term{2, 1});
  REQUIRE(again);
  CHECK(again->size() == 1);
  CHECK(asking.questions.take_replay(Term{3, 2}));
  CHECK(asking.questions.take_replay(Term{3, 2}));
  asking.questions.replay_arrived();
  CHECK_FALSE(asking.questions.take_replay(Term{3, 2}));
}

TEST_CASE("the time for which a round may write counts from the asking",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::current);
  asking.answer(1, kAsked + 3s, 10'000);
  REQUIRE(asking.answers.size() == 1);
  CHECK(asking.answers.front().number == 7'000);
}

TEST_CASE("an answer that lay in the socket for longer than it grants is asked for again",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::current);
  asking.answer(1, kAsked + 11s, 10'000);
  CHECK(asking.answers.empty());
  CHECK(asking.last_id() == 2);
  asking.answer(2, kAsked + 12s, 10'000);
  REQUIRE(asking.answers.size() == 1);
  CHECK(asking.answers.front().number == 9'000);
}

TEST_CASE("after a doubt about the clock an answer to the older question counts no more",
          "[rendezvous][store_questions]") {
  Asking asking;
  asking.ask(Op::current);
  asking.ask(Op::get);
  asking.questions.ask_current_anew(kAsked + 1s);
  CHECK(asking.last_id() == 3);
  asking.answer(1, kAsked + 1s, 10'000);
  CHECK(asking.answers.empty());
  asking.answer(2, kAsked + 1s);  // the store's questions keep their numbers
  asking.answer(3, kAsked + 2s, 10'000);
  CHECK(asking.answers.size() == 2);
}

TEST_CASE("the table of nodes is asked for once for all who want it",
          "[rendezvous][store_questions]") {
  Asking asking;
  std::vector<std::size_t> rows;
  for (int i = 0; i < 2; ++i)
    asking.questions.ask_for_table([&](const auto& table) { rows.push_back(table.size()); });
  CHECK(asking.sent.size() == 1);
  asking.questions.received(Table{0, 3, {TableRow{}, TableRow{}}});
  CHECK(rows.empty());
  asking.questions.received(Table{2, 3, {TableRow{}}});
  CHECK(rows == std::vector<std::size_t>{3, 3});
}

}  // namespace
}  // namespace acc::rendezvous
