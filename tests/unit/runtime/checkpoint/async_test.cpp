#include "runtime/checkpoint/agreement.hpp"
#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <acc/checkpoint.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

using namespace acc::testing;
using acc::runtime::Error;

namespace {

/// Holds the writers before their first file until it is opened.
class Gate {
 public:
  void wait() {
    std::unique_lock lock{guard_};
    if (!changed_.wait_for(lock, std::chrono::seconds{20}, [&] { return open_; })) {
      throw std::runtime_error{"the gate wasn't opened in 20 s"};
    }
  }
  void open() {
    const std::lock_guard lock{guard_};
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  bool open_ = false;
};

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error{what};
}

CheckpointOptions async_options(const fs::path& folder) {
  auto options = quiet_options(folder);
  options.async = true;
  return options;
}

}  // namespace

TEST_CASE("an asynchronous save holds the state of its moment, while the loop goes on",
          "[runtime][checkpoint][async]") {
  const auto ranks = GENERATE(1, 3);
  const TemporaryFolder folder;
  Gate gate;
  WatchedFileOps files{[&](const FileEvent& event) {
    if (event.operation == "create") gate.wait();
  }};
  on_ranks(ranks, [&](ProcessGroup& group) {
    auto checkpoints = checkpointer_with(group, async_options(folder.path()), files);
    SmallRun run{group.rank(), ranks, 4};
    const auto path = checkpoints.save(9, run.state());
    require(!fs::exists(path), "it can't be there yet");
    run = SmallRun{group.rank(), ranks, 5};  // the next step
    std::vector<float> one{1};
    group.all_reduce(std::span{one});  // training's own calls pass those of the writer
    require(one.front() == static_cast<float>(ranks), "another sum");
    if (group.rank() == 0) gate.open();
    checkpoints.wait();
    require(fs::exists(path), "it must be there now");
  });
  CHECK(loaded_seed(folder.path(), ranks) == 4);
}

TEST_CASE("one save at a time: the next waits for the one before", "[runtime][checkpoint][async]") {
  const TemporaryFolder folder;
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, async_options(folder.path())};
    for (int number = 0; number < 5; ++number) {
      SmallRun run{group.rank(), 2, number};
      checkpoints.save(static_cast<std::uint64_t>(number), run.state());
      group.barrier();
      if (number > 0) {
        require(fs::exists(folder / checkpoint_name(static_cast<std::uint64_t>(number - 1))),
                "the one before isn't complete");
      }
    }
  });
  // The destructors waited for the last.
  CHECK(list_checkpoints(folder.path()).size() == 5);
  CHECK(loaded_seed(folder.path(), 2) == 4);
}

TEST_CASE("a failure of the writing thread comes with the next save, once",
          "[runtime][checkpoint][async]") {
  const TemporaryFolder folder;
  std::atomic<bool> full{true};
  WatchedFileOps files{[&](const FileEvent& event) {
    if (full && event.operation == "write") checkpoint::fail("write", event.path, ENOSPC);
  }};
  on_ranks(2, [&](ProcessGroup& group) {
    auto checkpoints = checkpointer_with(group, async_options(folder.path()), files);
    SmallRun run{group.rank(), 2, 1};
    checkpoints.save(1, run.state());
    try {
      checkpoints.save(2, run.state());
      throw std::runtime_error{"no failure"};
    } catch (const Error& error) {
      require(std::string_view{error.what()}.find("No space left") != std::string_view::npos,
              error.what());
    }
    group.barrier();
    full = false;
    checkpoints.save(3, run.state());
    checkpoints.wait();
    checkpoints.wait();  // nothing left to tell
  });
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_3"});
}

TEST_CASE("a failure that was not thrown before is reported at the end",
          "[runtime][checkpoint][async]") {
  const TemporaryFolder folder;
  std::vector<std::string> told;
  WatchedFileOps files{[&](const FileEvent& event) {
    if (event.operation == "write") checkpoint::fail("write", event.path, ENOSPC);
  }};
  on_ranks(1, [&](ProcessGroup& group) {
    auto options = async_options(folder.path());
    options.tell = [&](const std::string& what) { told.push_back(what); };
    auto checkpoints = checkpointer_with(group, options, files);
    SmallRun run{0, 1, 1};
    checkpoints.save(1, run.state());
  });
  REQUIRE(told.size() == 1);
  CHECK_THAT(told.front(), Catch::Contains("the last save failed") && Catch::Contains("No space"));
}

TEST_CASE("a rank that goes while the others write ends their save with an error",
          "[runtime][checkpoint][async]") {
  const TemporaryFolder folder;
  auto groups = thread_groups(2);
  int failed = 0;
  on_all(groups, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, async_options(folder.path())};
    SmallRun run{group.rank(), 2, 1};
    if (group.rank() == 1) {
      group.abort("the test ends this rank");
      return;
    }
    try {
      checkpoints.save(1, run.state());
      checkpoints.wait();
    } catch (const Error&) {
      ++failed;
    }
  });
  CHECK(failed == 1);
  CHECK(loaded_seed(folder.path(), 1) == std::nullopt);
}

// ---- the limit of the calls in which ranks wait for files ----

TEST_CASE("a save longer than the collective time-out ended a healthy job",
          "[runtime][checkpoint][async]") {
  const auto async = GENERATE(false, true);
  const TemporaryFolder folder;
  std::atomic<bool> waits{true};
  WatchedFileOps files{[&](const FileEvent& event) {
    // By rank 0, for longer than the other rank may be in a call.
    if (event.operation == "rename" && waits.exchange(false))
      std::this_thread::sleep_for(std::chrono::milliseconds{1500});
  }};
  GroupOptions short_limit;
  short_limit.timeout = std::chrono::seconds{1};  // a busy machine needs some of it elsewhere
  auto groups = thread_groups(2, short_limit);
  on_all(groups, [&](ProcessGroup& group) {
    auto options = quiet_options(folder.path());
    options.async = async;
    auto checkpoints = checkpointer_with(group, options, files);
    SmallRun run{group.rank(), 2, 3};
    checkpoints.save(1, run.state());
    checkpoints.wait();
    require(group.flight_record().find(R"("in":"checkpoint")") != std::string::npos || async,
            "a call doesn't say that it is a checkpoint's");
    require(!group.broken(), "the group is broken");
  });
  CHECK(loaded_seed(folder.path(), 2) == 3);
}

TEST_CASE(
    "ranks wait half an hour for files, or as long as the group's calls may take if that is "
    "longer",
    "[runtime][checkpoint]") {
  const auto limit = [](std::chrono::milliseconds of_group) {
    GroupOptions options;
    options.timeout = of_group;
    return checkpoint::call_for_files(thread_groups(1, options)[0]).timeout;
  };
  using std::chrono::minutes;
  CHECK(limit(std::chrono::milliseconds{400}) == minutes{30});
  CHECK(limit(minutes{30}) == minutes{30});
  CHECK(limit(minutes{50}) == minutes{50});
  CHECK(limit(minutes{0}) == minutes{0});  // without a limit
}
