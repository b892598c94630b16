#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>

using namespace acc::testing;

namespace {

enum class End { killed, finished };

/// A process of `ranks` threads that saves seed 2 as checkpoint_2, or under the number that is
/// there already, and dies by SIGKILL right before its k-th file operation (also when half of a
/// write is done).
End save_and_die(const fs::path& folder, int ranks, std::uint64_t number, bool can_exchange,
                 bool async, std::size_t k) {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // No assertion in here: it would speak for the parent.
    try {
      WatchedFileOps files{[k](const FileEvent& event) {
        if (event.number == k) ::kill(::getpid(), SIGKILL);
      }};
      files.can_exchange = can_exchange;
      on_ranks(ranks, [&](ProcessGroup& group) {
        auto options = quiet_options(folder);
        options.keep_last = 1;
        options.async = async;
        auto checkpoints = checkpointer_with(group, options, files);
        go_on(checkpoints, group);
        SmallRun run{group.rank(), ranks, 2};
        checkpoints.save(number, run.state());
        checkpoints.wait();
      });
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return End::killed;
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return End::finished;
}

struct Counts {
  int olds = 0, news = 0;
};

/// Kills the writer at every operation it makes, and looks each time at what is left.
Counts kill_everywhere(int ranks, std::uint64_t number, bool can_exchange, bool async) {
  Counts counts;
  for (std::size_t k = 1;; ++k) {
    INFO("operation " << k);
    REQUIRE(k < 1000);
    const TemporaryFolder folder;
    save_seed(folder.path(), ranks, 1, 1);
    const auto end = save_and_die(folder.path(), ranks, number, can_exchange, async, k);
    const auto found = loaded_seed(folder.path(), ranks);
    REQUIRE((found == 1 || found == 2));
    (found == 1 ? counts.olds : counts.news) += 1;
    // Whatever the dead one left goes with the next save, which is as good as any.
    save_seed(folder.path(), ranks, 3, 3, 1);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_3"});
    CHECK(loaded_seed(folder.path(), ranks) == 3);
    if (end == End::finished) {
      CHECK(found == 2);
      return counts;
    }
  }
}

}  // namespace

TEST_CASE("a writer killed at any of its operations leaves the old checkpoint or the new one",
          "[runtime][checkpoint][kill]") {
  const auto ranks = GENERATE(1, 2);
  const auto counts = kill_everywhere(ranks, 2, true, false);
  // Both were seen, and most of the time the old one: it was there until the rename.
  CHECK(counts.olds > 20);
  CHECK(counts.news > 5);
}

TEST_CASE("a writer killed while it replaces a checkpoint leaves the old one or the new one",
          "[runtime][checkpoint][kill]") {
  const auto can_exchange = GENERATE(true, false);
  const auto counts = kill_everywhere(1, 1, can_exchange, false);
  CHECK(counts.olds > 15);
  CHECK(counts.news > 5);
}

TEST_CASE("a writing thread killed with its process leaves the old checkpoint or the new one",
          "[runtime][checkpoint][kill]") {
  const auto counts = kill_everywhere(1, 2, true, true);
  CHECK(counts.olds > 15);
  CHECK(counts.news > 5);
}
