#include "agent/daemon/trial_turns.hpp"

#include <catch2/catch.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <memory>
#include <optional>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using namespace std::chrono_literals;
namespace asio = boost::asio;

TEST_CASE("of a user's trials a few run at once, the others in the order of their arrival",
          "[daemon][trials]") {
  TrialQueue queue{{.at_once = 2, .waiting = 2}};
  std::vector<TrialQueue::Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(queue.enter(1001).value());
  const auto running = [&] {
    std::vector<bool> found;
    for (const auto ticket : tickets) found.push_back(queue.may_run(1001, ticket));
    return found;
  };
  CHECK(running() == std::vector{true, true, false, false});
  CHECK_FALSE(queue.enter(1001));
  CHECK(queue.may_run(1002, queue.enter(1002).value()));
  SECTION("the next one runs when one has ended") {
    CHECK(queue.leave(1001, tickets[1]) == tickets[2]);
    CHECK(running() == std::vector{true, false, true, false});
    CHECK(queue.enter(1001));
  }
  SECTION("one that gives up waiting lets none run") {
    CHECK(queue.leave(1001, tickets[2]) == std::nullopt);
    CHECK(running() == std::vector{true, true, false, false});
    CHECK(queue.leave(1001, tickets[0]) == tickets[3]);
  }
  SECTION("it ends empty, also by tickets that are unknown by then") {
    for (const auto ticket : tickets) queue.leave(1001, ticket);
    CHECK(queue.leave(1001, tickets[0]) == std::nullopt);
    CHECK_FALSE(queue.may_run(1001, tickets[0]));
    CHECK(queue.may_run(1001, queue.enter(1001).value()));
  }
}

namespace {

struct Turns {
  asio::io_context io{1};
  TrialTurns turns{{.at_once = 1, .waiting = 8}};

  /// Runs until it has answered or waits.
  std::shared_ptr<std::optional<Result<TrialTurns::Turn>>> ask(
      std::shared_ptr<CallerLink> caller = nullptr, std::chrono::milliseconds limit = 1h) {
    auto answer = std::make_shared<std::optional<Result<TrialTurns::Turn>>>();
    asio::co_spawn(io, turns.wait(1001, std::move(caller), limit),
                   [answer](std::exception_ptr failed, Result<TrialTurns::Turn> turn) {
                     if (!failed) *answer = std::move(turn);
                   });
    poll();
    return answer;
  }
  void poll() {
    io.restart();
    io.poll();
  }
};

}  // namespace

TEST_CASE("a trial whose caller hangs up while it waits leaves its place to the next",
          "[daemon][trials]") {
  Turns turns;
  auto first = turns.ask();
  REQUIRE(first->has_value());
  const auto caller = std::make_shared<CallerLink>();
  const auto gone = turns.ask(caller);
  const auto next = turns.ask();
  CHECK_FALSE(gone->has_value());
  caller->close();
  turns.poll();
  REQUIRE(gone->has_value());
  CHECK((*gone)->error().code == Errc::unavailable);
  CHECK_FALSE(next->has_value());
  first->reset();
  turns.poll();
  REQUIRE(next->has_value());
  CHECK((*next)->has_value());
}

TEST_CASE("a trial whose caller has gone already isn't begun", "[daemon][trials]") {
  Turns turns;
  const auto caller = std::make_shared<CallerLink>();
  caller->close();
  const auto answer = turns.ask(caller);
  REQUIRE(answer->has_value());
  CHECK((*answer)->error().code == Errc::unavailable);
}

TEST_CASE("a trial that waits for too long is refused as exhausted", "[daemon][trials]") {
  Turns turns;
  const auto first = turns.ask();
  const auto late = turns.ask(nullptr, 1ms);
  while (!late->has_value()) turns.io.run_one();
  CHECK((*late)->error().code == Errc::exhausted);
}

TEST_CASE("a loop that ends while trials wait touches none of them", "[daemon][trials]") {
  std::shared_ptr<std::optional<Result<TrialTurns::Turn>>> first;
  Turns turns;
  const auto caller = std::make_shared<CallerLink>();
  first = turns.ask();
  const auto waiting = turns.ask(caller);
  CHECK_FALSE(waiting->has_value());
}
