#include "agent/watch/page_holders.hpp"

#include "agent/heartbeat_board.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

using namespace acc;
using namespace acc::agent;

namespace {

/// A program of this process, the worker. It waits until it is killed.
class Program {
 public:
  Program() : pid_{::fork()} {
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~Program() { end(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  [[nodiscard]] std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }
  void kill() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);  // a zombie from then on
  }
  void end() {
    if (pid_ == 0) return;
    kill();
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

heartbeat::Beat beat_of(std::uint32_t pid, std::uint64_t time_ns = 1) {
  heartbeat::Beat beat;
  beat.pid = pid;
  beat.time_ns = time_ns;
  return beat;
}

}  // namespace

TEST_CASE("a program that had a rank's page has ended, and its worker lives", "[agent][hang]") {
  PageHolders holders;
  holders.begin_round(1);
  const auto has_ended = [&](const heartbeat::Beat& beat) {
    return holders.has_ended(LocalRank{0}, beat, ::getpid());
  };
  Program first;
  const auto beat = beat_of(first.pid());
  for (int look = 0; look < 3; ++look) CHECK_FALSE(has_ended(beat));
  SECTION("and nobody has waited for it") { first.kill(); }
  SECTION("and is gone") { first.end(); }
  CHECK_FALSE(has_ended(beat_of(beat.pid, 2)));  // its last sign of life
  CHECK(has_ended(beat_of(beat.pid, 2)));
  CHECK_FALSE(has_ended(beat_of(beat.pid, 2)));  // once
  Program second;
  for (int look = 0; look < 3; ++look) CHECK_FALSE(has_ended(beat_of(second.pid())));
}

TEST_CASE("a program that came and went between two looks kept the page", "[agent][hang]") {
  PageHolders holders;
  holders.begin_round(1);
  Program first;
  const auto beat = beat_of(first.pid());
  first.end();
  CHECK(holders.has_ended(LocalRank{0}, beat, ::getpid()));
  CHECK_FALSE(holders.has_ended(LocalRank{0}, beat, ::getpid()));  // once
}

TEST_CASE("a pid that is no descendant of the worker says nothing, as of a container's",
          "[agent][hang]") {
  PageHolders holders;
  holders.begin_round(1);
  Program worker;
  Program other;
  const auto worker_pid = static_cast<pid_t>(worker.pid());
  const auto beat = beat_of(other.pid());
  CHECK_FALSE(holders.has_ended(LocalRank{0}, beat, worker_pid));
  other.end();
  CHECK_FALSE(holders.has_ended(LocalRank{0}, beat, worker_pid));
  CHECK_FALSE(holders.has_ended(LocalRank{0}, beat_of(worker.pid()), worker_pid));
  CHECK_FALSE(holders.has_ended(LocalRank{0}, beat_of(0), worker_pid));
}

TEST_CASE("what a program that has ended left on the page is cleared, but for its checkpoints",
          "[agent][heartbeat]") {
  HeartbeatBoard board;
  board.begin_round(Round{0}, 1);
  auto* const slot = heartbeat::map_slot(board.path() + ":64");
  REQUIRE(slot != nullptr);
  write_beat(*slot, 5);
  write_checkpoint(*slot, 4);
  heartbeat::write_section(*slot, "save", 7, 8);
  const auto pid = board.beats()[0].pid;
  board.release(LocalRank{0}, pid + 1);  // another one has it
  CHECK(board.beats()[0].step == 5);
  board.release(LocalRank{0}, pid);
  heartbeat::Beat left;
  left.checkpoints = 1;
  left.checkpoint_step = 4;
  CHECK(board.beats()[0] == left);
  board.on_beat(LocalRank{0}, 9);  // of one that sends messages
  CHECK(board.beats()[0].step == 9);
}
