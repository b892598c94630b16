#include "agent/heartbeat_board.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;

TEST_CASE("messages of workers stand on the page, and the first one is told once",
          "[agent][heartbeat]") {
  HeartbeatBoard board;
  CHECK(board.path().empty());
  board.begin_round(Round{3}, 2);
  int signs = 0;
  int saved = 0;
  board.on_first_sign([&] { ++signs; });
  board.on_checkpoint_told([&] { ++saved; });
  CHECK_FALSE(board.is_in_use());
  board.on_checkpoint(LocalRank{0}, 39);  // no reason to look
  CHECK_FALSE(board.is_in_use());
  board.on_beat(LocalRank{1}, 41);
  board.on_beat(LocalRank{1}, 42);
  board.on_section(LocalRank{0}, "evaluation", 90s);
  board.on_checkpoint(LocalRank{0}, 40);
  board.on_beat(LocalRank{7}, 1);  // no worker of this node
  CHECK(signs == 1);
  CHECK(saved == 2);
  CHECK(board.is_in_use());
  const auto beats = board.beats();
  REQUIRE(beats.size() == 2);
  CHECK(beats[1].beats == 2);
  CHECK(beats[1].step == 42);
  CHECK(beats[0].section == "evaluation");
  CHECK(beats[0].section_limit_ms == 90'000);
  CHECK(beats[0].checkpoint_step == 40);
  CHECK(board.checkpoints() == 2);
  board.on_section(LocalRank{0}, "", 0ms);
  CHECK(board.beat(LocalRank{0})->section_since_ns == 0);

  board.begin_round(Round{4}, 2);
  CHECK_FALSE(board.is_in_use());
  CHECK(board.beats()[1].beats == 0);
  CHECK(board.checkpoints() == 0);
}

TEST_CASE("a worker that writes its page itself isn't counted twice", "[agent][heartbeat]") {
  HeartbeatBoard board;
  board.begin_round(Round{0}, 1);
  auto* const slot = heartbeat::map_slot(board.path() + ":64");
  REQUIRE(slot != nullptr);
  board.on_beat(LocalRank{0}, 0);  // its announcement
  CHECK(board.is_in_use());
  CHECK(board.beats()[0].beats == 0);
  write_beat(*slot, 5);
  CHECK(board.beats()[0].step == 5);
}
