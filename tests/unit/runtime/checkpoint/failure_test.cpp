#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <acc/checkpoint.hpp>
#include <atomic>
#include <mutex>
#include <set>

using namespace acc::testing;
using acc::runtime::Error;

namespace {

/// What every rank's save failed with; the group and the checkpointer then go on.
struct Outcome {
  std::set<std::string> words;  ///< one, where all ranks were told the same
  std::set<ErrorCode> codes;
  int failed = 0;
};

/// `ranks` threads save seed 2 as checkpoint_2 with these operations (rank by rank), and go on as
/// if nothing had been.
Outcome failing_save(const fs::path& folder, int ranks, checkpoint::FileOps& files,
                     const std::function<void(CheckpointState&, int)>& change = {},
                     bool async = false) {
  std::mutex guard;
  Outcome outcome;
  const bool goes_on = fs::is_directory(folder);
  on_ranks(ranks, [&](ProcessGroup& group) {
    auto options = quiet_options(folder);
    options.async = async;
    options.keep_last = 1;
    auto checkpoints = checkpointer_with(group, options, files);
    if (goes_on) go_on(checkpoints, group);
    SmallRun run{group.rank(), ranks, 2};
    auto state = run.state();
    if (change) change(state, group.rank());
    try {
      checkpoints.save(2, state);
      checkpoints.wait();
    } catch (const Error& error) {
      const std::lock_guard lock{guard};
      outcome.words.insert(error.what());
      outcome.codes.insert(error.code());
      ++outcome.failed;
    }
    group.barrier();
  });
  return outcome;
}

[[noreturn]] void fail_with(int errnum, const FileEvent& event) {
  checkpoint::fail(event.operation, event.path, errnum);
}

}  // namespace

TEST_CASE("a disk that is full at any moment leaves the checkpoint before, and says so",
          "[runtime][checkpoint]") {
  const auto ranks = GENERATE(1, 3);
  const auto async = GENERATE(false, true);
  const TemporaryFolder folder;
  save_seed(folder.path(), ranks, 1, 1);
  bool went_well = false;
  for (std::size_t k = 1; !went_well; ++k) {
    INFO("operation " << k);
    REQUIRE(k < 500);
    std::atomic<bool> failed{false};
    WatchedFileOps files{[&](const FileEvent& event) {
      if (event.number != k || event.operation == "remove") return;
      failed = true;
      fail_with(ENOSPC, event);
    }};
    const auto outcome = failing_save(folder.path(), ranks, files, {}, async);
    went_well = !failed && k > files.count();
    if (outcome.failed == 0) {
      // It was complete already, or nothing but what is too old was in the way.
      CHECK(loaded_seed(folder.path(), ranks) == 2);
      fs::remove_all(folder / "checkpoint_2");
      if (!fs::exists(folder / "checkpoint_1")) save_seed(folder.path(), ranks, 1, 1);
      continue;
    }
    CHECK(failed);
    CHECK(outcome.failed == ranks);
    CHECK(outcome.words.size() == 1);
    CHECK(outcome.codes == std::set{ErrorCode::system});
    CHECK_THAT(*outcome.words.begin(), Catch::Contains("No space left on device") &&
                                           Catch::Contains(folder.path().native()));
    CHECK(leftovers_in(folder.path()).empty());
    const auto left = loaded_seed(folder.path(), ranks);
    // After the rename it is there, and only not known to last.
    if (left != 1) {
      CHECK(left == 2);
      CHECK(outcome.words.begin()->find("sync_folder") != std::string::npos);
      fs::remove_all(folder / "checkpoint_2");
    }
  }
  CHECK(went_well);
}

TEST_CASE("a folder that can't be made or written is told with its path", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  put_contents(folder / "file", "");
  auto& real = checkpoint::FileOps::real();
  const auto outcome = failing_save(folder / "file" / "checkpoints", 2, real);
  CHECK(outcome.failed == 2);
  REQUIRE(outcome.words.size() == 1);
  CHECK_THAT(*outcome.words.begin(),
             Catch::Contains((folder / "file").native()) && Catch::Contains("Not a directory"));
}

TEST_CASE("a folder that vanishes while it is written is told", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto place = folder / "checkpoints";
  WatchedFileOps files{[&](const FileEvent& event) {
    if (event.operation == "create" && event.path.filename() == "manifest.json") {
      fs::remove_all(place);
    }
  }};
  const auto outcome = failing_save(place, 2, files);
  CHECK(outcome.failed == 2);
  REQUIRE(outcome.words.size() == 1);
  CHECK_THAT(*outcome.words.begin(), Catch::Contains("manifest.json': No such file"));
  // The next save makes it again.
  save_seed(place, 2, 3, 3);
  CHECK(loaded_seed(place, 2) == 3);
}

TEST_CASE("one rank's failure is all ranks' failure, and names it", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  WatchedFileOps files{[](const FileEvent& event) {
    if (event.operation == "write" &&
        event.path.native().find("rank-00002-of") != std::string::npos) {
      fail_with(EIO, event);
    }
  }};
  const auto outcome = failing_save(folder.path(), 4, files);
  CHECK(outcome.failed == 4);
  REQUIRE(outcome.words.size() == 1);
  CHECK_THAT(*outcome.words.begin(),
             Catch::Contains("rank 2: ") && Catch::Contains("Input/output error"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a state that can't be written is refused on all ranks alike", "[runtime][checkpoint]") {
  struct Case {
    std::function<void(CheckpointState&, int)> change;
    std::string words;
  };
  static std::vector<float> more(6);
  const std::vector<Case> cases{
      {[](auto& state, int rank) {
         if (rank == 1) state.per_rank["rng"] = "{";
       },
       "rank 1: state 'rng' is no JSON text: {"},
      {[](auto& state, int) { state.shared["x"] = "nan"; }, "state 'x' is no JSON text"},
      {[](auto& state, int) { state.tensors[0].part = "../x"; }, "its part '../x'"},
      {[](auto& state, int) { state.tensors[0].part = ""; }, "its part ''"},
      {[](auto& state, int) { state.tensors.push_back(state.tensors[0]); }, "'weights' is twice"},
      {[](auto& state, int) { state.tensors[0].view.data = nullptr; }, "'weights' has no memory"},
      {[](auto& state, int) { state.tensors[0].view.shape = {-1}; }, "has the shape [-1]"},
      {[](auto& state, int) { state.tensors[0].name = "\xff"; }, "UTF-8"},
      {[](auto& state, int) { state.tensors[1].placement = Placement::sharded; },
       "'steps' is a scalar"},
      {[](auto& state, int rank) {
         if (rank == 2) state.tensors.pop_back();
       },
       "rank 2 has 1 sharded tensors, rank 0 has 2"},
      {[](auto& state, int rank) {
         if (rank == 2) state.tensors.back().name = "other";
       },
       "rank 2 has the sharded tensor 'other', rank 0 hasn't"},
      {[](auto& state, int rank) {
         if (rank == 1) {
           state.tensors.back() = {"second", TensorView{std::span{more}, {2, 3}},
                                   Placement::sharded, "optimizer"};
         }
       },
       "as f32 [2, 3], the ranks before as bf16"},
  };
  const TemporaryFolder folder;
  save_seed(folder.path(), 3, 1, 1);
  for (const auto& one : cases) {
    INFO(one.words);
    const auto outcome = failing_save(folder.path(), 3, checkpoint::FileOps::real(), one.change);
    CHECK(outcome.failed == 3);
    CHECK(outcome.codes == std::set{ErrorCode::invalid_argument});
    REQUIRE(outcome.words.size() == 1);
    CHECK_THAT(*outcome.words.begin(), Catch::Contains(one.words));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_1"});
  }
}

TEST_CASE("ranks that don't see the same folder are told so", "[runtime][checkpoint]") {
  const TemporaryFolder one, other;
  std::mutex guard;
  std::set<std::string> words;
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(group.rank() == 0 ? one.path() : other.path())};
    SmallRun run{group.rank(), 2, 1};
    try {
      checkpoints.save(1, run.state());
    } catch (const Error& error) {
      const std::lock_guard lock{guard};
      words.insert(error.what());
    }
  });
  REQUIRE(words.size() == 1);
  CHECK_THAT(*words.begin(), Catch::Contains("rank 1: '" + other.path().native() + "'") &&
                                 Catch::Contains("one that all ranks see"));
  CHECK(names_in(one.path()).empty());
  CHECK(names_in(other.path()).empty());
}

TEST_CASE("an old checkpoint that can't be removed is told, and no failure",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 1, 1);
  std::vector<std::string> told;
  WatchedFileOps files{[](const FileEvent& event) {
    if (event.operation == "remove") fail_with(EACCES, event);
  }};
  on_ranks(1, [&](ProcessGroup& group) {
    auto options = quiet_options(folder.path());
    options.keep_last = 1;
    options.tell = [&](const std::string& what) { told.push_back(what); };
    auto checkpoints = checkpointer_with(group, options, files);
    go_on(checkpoints, group);
    SmallRun run{0, 1, 2};
    checkpoints.save(2, run.state());
  });
  REQUIRE(told.size() == 1);
  CHECK_THAT(told.front(), Catch::Contains("Permission denied"));
  CHECK(loaded_seed(folder.path(), 1) == 2);
}
