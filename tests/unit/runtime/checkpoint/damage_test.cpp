#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <array>
#include <cctype>
#include <random>

using namespace acc::testing;
using acc::runtime::Error;

namespace {

/// Two checkpoints of two ranks, 1 (seed 1) and 2 (seed 2).
struct Two {
  TemporaryFolder folder;
  Two() {
    save_seed(folder.path(), 2, 1, 1);
    save_seed(folder.path(), 2, 2, 2);
  }
  [[nodiscard]] fs::path newest() const { return folder / "checkpoint_2"; }
};

}  // namespace

TEST_CASE("a flipped bit anywhere in the newest checkpoint: the one before is used, and told",
          "[runtime][checkpoint]") {
  const Two two;
  std::mt19937 random{9};
  for (const auto& name : names_in(two.newest())) {
    const auto path = two.newest() / name;
    const auto good = contents_of(path);
    for (int round = 0; round < 8; ++round) {
      const auto at = round == 0 ? 0 : round == 1 ? good.size() - 1 : random() % good.size();
      // How the lines of the manifest are broken doesn't matter.
      const auto is_space = std::isspace(static_cast<unsigned char>(good[at])) != 0;
      if (name == "manifest.json" && is_space) continue;
      const auto bit = 1U << (random() % 8);
      flip(path, at, bit);
      INFO(name << " at " << at);
      std::vector<std::string> told;
      CHECK(loaded_seed(two.folder.path(), 2, &told) == 1);
      REQUIRE(told.size() == 1);
      CHECK_THAT(told.front(),
                 Catch::Contains("checkpoint_2 is passed over") && Catch::Contains(path.native()));
      flip(path, at, bit);
    }
    CHECK(loaded_seed(two.folder.path(), 2) == 2);
  }
}

TEST_CASE("each file cut short, grown, emptied or gone is seen", "[runtime][checkpoint]") {
  const Two two;
  for (const auto& name : names_in(two.newest())) {
    INFO(name);
    const auto path = two.newest() / name;
    const auto good = contents_of(path);
    put_contents(path, std::string_view{good}.substr(0, good.size() / 2));
    CHECK(loaded_seed(two.folder.path(), 2) == 1);
    put_contents(path, good + "x");
    CHECK(loaded_seed(two.folder.path(), 2) == 1);
    put_contents(path, "");
    CHECK(loaded_seed(two.folder.path(), 2) == 1);
    fs::remove(path);
    CHECK(loaded_seed(two.folder.path(), 2) == 1);
    fs::create_directory(path);
    CHECK(loaded_seed(two.folder.path(), 2) == 1);
    fs::remove(path);
    put_contents(path, good);
    CHECK(loaded_seed(two.folder.path(), 2) == 2);
  }
}

TEST_CASE("files of two checkpoints mixed are seen", "[runtime][checkpoint]") {
  const Two two;
  for (const auto& name : names_in(two.newest())) {
    INFO(name);
    const auto good = contents_of(two.newest() / name);
    put_contents(two.newest() / name, contents_of(two.folder / "checkpoint_1" / name));
    CHECK(loaded_seed(two.folder.path(), 2) == 1);
    put_contents(two.newest() / name, good);
  }
}

TEST_CASE("a run that removed what a reader had listed made it say that all are corrupt",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 1);
  on_ranks(2, [&](ProcessGroup& group) {
    auto options = quiet_options(folder.path());
    options.tell = [&](const std::string& what) {  // rank 0 has just found that it isn't there
      CHECK_THAT(what, Catch::Contains("checkpoint_1 is passed over"));
      save_seed(folder.path(), 2, 2, 2);
    };
    // Between the list and the look: the file that is looked at is gone.
    if (group.rank() == 0) fs::remove(folder / "checkpoint_1" / "manifest.json");
    group.barrier();
    Checkpointer checkpoints{group, options};
    SmallRun run{group.rank(), 2};
    const auto found = checkpoints.load(run.state());
    REQUIRE(found);
    CHECK(found->checkpoint.path() == folder / "checkpoint_2");
  });
}

namespace {

/// Before it reads, rank 0 replaces the checkpoint that was opened by the next one, `removals`
/// times.
std::optional<Restored> read_while_others_save(ProcessGroup& group, const fs::path& folder,
                                               SmallRun& run, std::uint64_t removals) {
  Checkpointer checkpoints{group, quiet_options(folder)};
  std::uint64_t number = 1;
  return checkpoints.read_newest([&](Restored& found) {
    CHECK(found.checkpoint.path() == folder / checkpoint_name(number));
    group.barrier();
    if (number <= removals && group.rank() == 0) {
      fs::remove_all(found.checkpoint.path());
      save_seed(folder, 2, number + 1, static_cast<int>(number) + 1);
    }
    ++number;
    group.barrier();
    checkpoints.fill(run.state(), found);
  });
}

}  // namespace

TEST_CASE("a checkpoint that is removed while it is read is followed by a newer one",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 1);
  on_ranks(2, [&](ProcessGroup& group) {
    SmallRun run{group.rank(), 2};
    const auto found = read_while_others_save(group, folder.path(), run, 2);
    REQUIRE(found);
    run.shared = found->shared;
    run.per_rank = found->per_rank;
    CHECK(run == SmallRun{group.rank(), 2, 3});
  });
}

TEST_CASE("a reader whose only checkpoint is removed doesn't take that for a fresh start",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 1);
  on_ranks(2, [&](ProcessGroup& group) {
    SmallRun run{group.rank(), 2};
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    CHECK_THROWS_WITH(checkpoints.read_newest([&](Restored& found) {
      group.barrier();
      if (group.rank() == 0) fs::remove_all(found.checkpoint.path());
      group.barrier();
      checkpoints.fill(run.state(), found);
    }),
                      Catch::Contains("removed while they were read: none is left"));
  });
}

TEST_CASE("a failure of another kind on one rank is no reason to read again on the others",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 1);
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    const auto code = group.rank() == 0 ? ErrorCode::system : ErrorCode::invalid_argument;
    CHECK_THROWS_WITH(checkpoints.read_newest([&](Restored& found) {
      group.barrier();
      if (group.rank() == 0) fs::remove_all(found.checkpoint.path());
      group.barrier();
      throw Error{code, "of this rank"};
    }),
                      Catch::Contains("of this rank"));
    group.barrier();  // the ranks are where they were
  });
}

TEST_CASE("a reader that is too slow for the run that saves is told so", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 1);
  on_ranks(2, [&](ProcessGroup& group) {
    SmallRun run{group.rank(), 2};
    CHECK_THROWS_WITH(read_while_others_save(group, folder.path(), run, 100),
                      Catch::Contains("checkpoint_6") && Catch::Contains("total_limit") &&
                          Catch::Contains("was removed while it was read"));
  });
}

TEST_CASE("damage that stays is an error as before, not a reason to look again",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 1, 1);
  on_ranks(1, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    SmallRun run{0, 1};
    int reads = 0;
    CHECK_THROWS_AS(checkpoints.read_newest([&](Restored& found) {
      ++reads;
      for (const auto& name : names_in(folder / "checkpoint_1"))
        fs::remove(folder / "checkpoint_1" / name);
      checkpoints.fill(run.state(), found);
    }),
                    Error);
    CHECK(reads == 1);
  });
}

TEST_CASE("where none is whole it is an error, not a fresh start", "[runtime][checkpoint]") {
  const Two two;
  fs::remove(two.newest() / "manifest.json");
  put_contents(two.folder / "checkpoint_1" / "state.json", "{}");
  try {
    [[maybe_unused]] const auto seed = loaded_seed(two.folder.path(), 2);
    FAIL("it was loaded");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt);
    CHECK_THAT(error.what(),
               Catch::Contains("checkpoint_2: ") && Catch::Contains("has no manifest") &&
                   Catch::Contains("checkpoint_1: ") && Catch::Contains("state.json"));
  }
}

TEST_CASE("a damaged checkpoint that is asked for by its number is an error",
          "[runtime][checkpoint]") {
  const Two two;
  fs::resize_file(two.newest() / "model.safetensors", 10);
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(two.folder.path())};
    SmallRun run{group.rank(), 2};
    try {
      checkpoints.load(2, run.state());
      throw std::runtime_error{"it was loaded"};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
    }
    try {
      checkpoints.load(5, run.state());
      throw std::runtime_error{"it was loaded"};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::system) throw;
    }
    checkpoints.load(1, run.state());
    if (run.steps.front() != 1) throw std::runtime_error{"not the one asked for"};
  });
}

TEST_CASE("a checkpoint that one rank can't see is no common one", "[runtime][checkpoint]") {
  // Two folders that should be one: rank 1 lacks the newest.
  const Two two;
  const TemporaryFolder other;
  fs::copy(two.folder / "checkpoint_1", other / "checkpoint_1", fs::copy_options::recursive);
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group,
                             quiet_options(group.rank() == 0 ? two.folder.path() : other.path())};
    SmallRun run{group.rank(), 2};
    const auto restored = checkpoints.load(run.state());
    if (run.steps.front() != 1 || restored.value().skipped.size() != 1 ||
        restored->skipped.front().find("rank 1") == std::string::npos) {
      throw std::runtime_error{"not the lowest common one"};
    }
  });
}

TEST_CASE("a rank that sees none, where others see some, is no fresh start",
          "[runtime][checkpoint]") {
  const Two two;
  const TemporaryFolder other;
  const auto blind = GENERATE(0, 1);
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{
        group, quiet_options(group.rank() == blind ? other.path() : two.folder.path())};
    SmallRun run{group.rank(), 2};
    try {
      checkpoints.load(run.state());
      throw std::runtime_error{"it was loaded"};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
    }
  });
}

TEST_CASE("other checkpoints under the same name on another rank are seen",
          "[runtime][checkpoint]") {
  const TemporaryFolder one, other;
  save_seed(one.path(), 2, 1, 1);
  save_seed(other.path(), 2, 1, 2);
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(group.rank() == 0 ? one.path() : other.path())};
    SmallRun run{group.rank(), 2};
    try {
      checkpoints.load(run.state());
      throw std::runtime_error{"it was loaded"};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
    }
  });
}

TEST_CASE("every block of a large file is checked, by any number of readers",
          "[runtime][checkpoint]") {
  const auto readers = GENERATE(1, 2, 5);
  const TemporaryFolder folder;
  std::vector<std::uint8_t> large(5'300'000);
  std::mt19937 random{5};
  for (auto& one : large) one = static_cast<std::uint8_t>(random());
  on_ranks(1, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    CheckpointState state;
    state.tensors = {{"large", std::span{large}}};
    checkpoints.save(0, state);
  });
  const auto path = folder / "checkpoint_0" / "model.safetensors";
  const Checkpoint checkpoint{folder / "checkpoint_0"};
  const auto complaints = [&] {
    int count = 0;
    for (int reader = 0; reader < readers; ++reader) {
      try {
        checkpoint.verify(reader, readers);
      } catch (const Error&) {
        ++count;
      }
    }
    return count;
  };
  CHECK(complaints() == 0);
  for (std::uint64_t at = 0; at < fs::file_size(path); at += 500'000) {
    flip(path, at, 1);
    CHECK(complaints() == 1);
    flip(path, at, 1);
  }
  CHECK(complaints() == 0);
}

namespace {

/// Loads as the user nobody: root reads everything. @return code and words; empty: it was loaded.
std::string loaded_without_rights(const fs::path& folder) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string words;
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    try {
      Checkpointer checkpoints{ProcessGroup::single(), quiet_options(folder)};
      SmallRun run{0, 1};
      checkpoints.load(run.state());
    } catch (const Error& error) {
      words = std::string{to_string(error.code())} + ": " + error.what();
    } catch (...) {
      ::_exit(3);
    }
    [[maybe_unused]] const auto said = ::write(pipe[1], words.data(), words.size());
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string words(4096, '\0');
  std::size_t length = 0;
  for (ssize_t n = 1; n > 0; length += static_cast<std::size_t>(n))
    n = ::read(pipe[0], words.data() + length, words.size() - length);
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  words.resize(length);
  return words;
}

}  // namespace

TEST_CASE("what can't be read just now is an error and no damaged checkpoint",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 1, 1);
  save_seed(folder.path(), 1, 2, 2);
  fs::permissions(folder.path(), fs::perms::all);
  REQUIRE(loaded_without_rights(folder.path()).empty());
  const auto newest = folder / "checkpoint_2";
  for (const auto& name : {"manifest.json", "model.safetensors", "state.json", ""}) {
    INFO(name);
    const auto path = *name == '\0' ? newest : newest / name;
    const auto before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::none);
    CHECK_THAT(loaded_without_rights(folder.path()),
               Catch::StartsWith("system: checkpoint_2 can't be read") &&
                   Catch::Contains("Permission denied"));
    fs::permissions(path, before);
  }
  fs::permissions(folder.path(), fs::perms::none);
  CHECK_THAT(loaded_without_rights(folder.path()),
             Catch::StartsWith("system: ") && Catch::Contains("Permission denied"));
  fs::permissions(folder.path(), fs::perms::all);
}
