#include "agent/output/timed_answers.hpp"

#include "common/duration.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <future>
#include <thread>

using namespace acc;
using namespace acc::agent;

TEST_CASE("a question that was answered late was open for ever", "[output]") {
  constexpr Millis kLong{60'000};
  TimedAnswers<int, int> questions;
  std::promise<int> late;
  const auto answer = late.get_future().share();
  CHECK(questions.ask(1, kLong, [] { return 7; }) == 7);
  CHECK_FALSE(questions.has_open());
  CHECK_FALSE(questions.ask(1, Millis{1}, [answer] { return answer.get(); }));
  CHECK(questions.has_open());
  CHECK_FALSE(questions.ask(1, kLong, [] { return 8; }));  // at once: the first has no answer
  CHECK(questions.ask(2, kLong, [] { return 9; }) == 9);
  late.set_value(7);
  const auto until = clock_now() + kLong;
  while (questions.has_open() && clock_now() < until) std::this_thread::yield();
  CHECK_FALSE(questions.has_open());
  CHECK(questions.ask(1, kLong, [] { return 8; }) == 8);
}
