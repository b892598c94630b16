#include "agent/daemon/listing_turns.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <vector>

using namespace acc::agent::daemon;
namespace asio = boost::asio;

namespace {

struct Lists {
  asio::io_context io{1};
  ListingTurns turns{io, 10};
  std::vector<ListingTurns::Turn> of_users;
  std::vector<ListingTurns::Turn> of_root;

  static asio::awaitable<void> hold(Lists& self, bool is_root) {
    auto turn = co_await self.turns.wait(is_root);
    (is_root ? self.of_root : self.of_users).push_back(std::move(turn));
  }
  void ask(int count, bool is_root) {
    for (int i = 0; i < count; ++i)
      asio::co_spawn(io, hold(*this, is_root), [](const std::exception_ptr& failed) {
        if (failed) std::rethrow_exception(failed);
      });
    go_on();
  }
  void go_on() {
    io.restart();
    io.poll();
  }
};

}  // namespace

TEST_CASE("lists of many users each had 256 connections open, and no descriptor was left",
          "[daemon]") {
  Lists lists;
  lists.ask(30, false);
  CHECK(lists.of_users.size() == 8);
  SECTION("root's go on beside them") {
    lists.ask(5, true);
    CHECK(lists.of_root.size() == 2);
    CHECK(lists.turns.running() == 10);
    lists.of_users.pop_back();  // the next turn is root's
    lists.go_on();
    CHECK(lists.of_root.size() == 3);
    CHECK(lists.of_users.size() == 7);
  }
  SECTION("each that ends makes place for the next one") {
    for (int ended = 0; ended < 30; ++ended) {
      REQUIRE_FALSE(lists.of_users.empty());
      lists.of_users.pop_back();
      lists.go_on();
      CHECK(lists.turns.running() <= 8);
    }
    CHECK(lists.of_users.empty());
    CHECK(lists.turns.running() == 0);
    lists.ask(10, true);
    CHECK(lists.of_root.size() == 10);
  }
}

TEST_CASE("a turn of a list may outlive the turns", "[daemon]") {
  asio::io_context io{1};
  auto turns = std::make_unique<ListingTurns>(io, 5);
  ListingTurns::Turn held;
  asio::co_spawn(
      io, [&]() -> asio::awaitable<void> { held = co_await turns->wait(false); }, asio::detached);
  io.poll();
  REQUIRE(held);
  turns.reset();
  held.reset();
}
