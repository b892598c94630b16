#include "agent/daemon/on_own_thread.hpp"

#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

namespace acc::agent::daemon {
namespace {

namespace asio = boost::asio;

/// Reads that wait in the kernel until they are released.
struct HeldReads {
  std::promise<void> gate;
  std::shared_future<void> opened{gate.get_future()};
  std::shared_ptr<std::atomic<int>> ended = std::make_shared<std::atomic<int>>(0);

  [[nodiscard]] std::function<void()> one() const {
    return [opened = opened, ended = ended] {
      opened.wait();
      ++*ended;
    };
  }
};

constexpr int kPlaces = 8;
constexpr Millis kShort{20};
constexpr Millis kLong{60'000};

// On a loop of its own.
bool await_on_own_thread(
    uid_t uid, std::function<void()> work, Millis limit, std::function<void()> meanwhile = [] {},
    HeldUpBy by = HeldUpBy::processes) {
  asio::io_context io;
  std::optional<bool> result;
  asio::co_spawn(
      io,
      [](uid_t of, std::function<void()> what, Millis until, HeldUpBy holds,
         std::optional<bool>& into) -> asio::awaitable<void> {
        into = co_await on_own_thread(of, std::move(what), until, holds);
      }(uid, std::move(work), limit, by, result),
      asio::detached);
  io.poll();
  meanwhile();
  io.run();
  return result.value();
}

}  // namespace

TEST_CASE("a read that its user holds up costs the caller its limit, and nobody else anything",
          "[daemon][own_thread]") {
  constexpr uid_t kHolder = 70'001;
  HeldReads held;
  const auto from = clock_now();
  SECTION("on the loop") { CHECK_FALSE(await_on_own_thread(kHolder, held.one(), kShort)); }
  SECTION("without one") { CHECK_FALSE(run_on_own_thread(kHolder, held.one(), kShort)); }
  CHECK(clock_now() - from >= kShort);
  CHECK(run_on_own_thread(kHolder + 1, [] {}, kLong));
  CHECK(*held.ended == 0);
  held.gate.set_value();
}

TEST_CASE("a user whose reads all hang has no thread left, and another one has",
          "[daemon][own_thread]") {
  constexpr uid_t kHolder = 70'011;
  HeldReads held;
  for (int i = 0; i < kPlaces; ++i) begin_on_own_thread(kHolder, held.one());
  const auto was_run = std::make_shared<std::atomic<bool>>(false);
  const std::function<void()> mark = [was_run] { *was_run = true; };
  CHECK_FALSE(run_on_own_thread(kHolder, mark, kShort));
  CHECK_FALSE(await_on_own_thread(kHolder, mark, kShort));
  CHECK_FALSE(*was_run);
  CHECK(run_on_own_thread(kHolder + 1, [] {}, kLong));
  // They end, and the next has a place.
  CHECK(await_on_own_thread(kHolder, mark, kLong, [&] { held.gate.set_value(); }));
  CHECK(*was_run);
}

TEST_CASE("processes of a user were not ended while look-ups of that user gave no answer",
          "[daemon][own_thread]") {
  constexpr uid_t kHolder = 70'021;
  HeldReads held;
  for (int i = 0; i < kPlaces; ++i)
    CHECK_FALSE(await_on_own_thread(
        kHolder, held.one(), kShort, [] {}, HeldUpBy::accounts));
  CHECK(run_on_own_thread(
      kHolder, [] {}, kLong));
  CHECK(await_on_own_thread(
      kHolder, [] {}, kLong));
  held.gate.set_value();
}

}  // namespace acc::agent::daemon
