#include "runtime/checkpoint/folder.hpp"

#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <cstdlib>

using namespace acc::testing;
using namespace acc::runtime::checkpoint;
using acc::runtime::Error;

namespace {

/// The pid and start of a process that has ended.
Writer dead_writer() {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  auto writer = this_writer();
  writer.pid = child;
  return writer;
}

}  // namespace

TEST_CASE("a temporary name tells who writes", "[runtime][checkpoint]") {
  const auto self = this_writer();
  CHECK(self.pid == ::getpid());
  CHECK(self.start > 0);
  const auto name = temporary_name(self, "checkpoint_7");
  CHECK(writer_of(name) == self);
  CHECK(writer_of(temporary_name(self, "a.b.c")) == self);
  CHECK(this_writer().count != self.count);
  for (const auto* foreign :
       {"", ".tmp-acc.", ".tmp-acc.1.2.3.4.5.6", ".tmp-acc.1.-2.3.4.5.6.x",
        ".tmp-acc.1.0.3.4.5.6.x", ".tmp-acc.a.2.3.4.5.6.x", ".tmp-acc.4294967296.2.3.4.5.6.x",
        ".tmp-other.1.2.3.4.5.6.x", "checkpoint_7"}) {
    INFO(foreign);
    CHECK(writer_of(foreign) == std::nullopt);
  }
}

TEST_CASE("a writer is gone when that is certain", "[runtime][checkpoint]") {
  const auto self = this_writer();
  CHECK_FALSE(is_gone(self, self));
  const auto dead = dead_writer();
  CHECK(is_gone(dead, self));
  auto reborn = self;  // our pid, but another process had it
  reborn.start -= 1;
  CHECK(is_gone(reborn, self));
  auto elsewhere = dead;  // its process ids mean nothing here
  elsewhere.place += 1;
  CHECK_FALSE(is_gone(elsewhere, self));
  elsewhere.job = 5;
  elsewhere.round = 2;
  auto later = self;
  later.job = 5;
  later.round = 2;
  CHECK_FALSE(is_gone(elsewhere, later));
  later.round = 3;
  CHECK(is_gone(elsewhere, later));
  later.job = 6;
  CHECK_FALSE(is_gone(elsewhere, later));
}

TEST_CASE("only what dead writers left is removed", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto dead = temporary_name(dead_writer(), "checkpoint_1");
  const auto alive = temporary_name(this_writer(), "checkpoint_1");
  for (const auto& name :
       {dead, alive, std::string{".tmp-foreign"}, std::string{"checkpoint_1"},
        std::string{".replaced-checkpoint_1"}, std::string{".replaced-checkpoint_2"}}) {
    fs::create_directories(folder / name / "deep");
    put_contents(folder / name / "deep" / "file", "x");
  }
  fs::create_directory_symlink(folder / "checkpoint_1", folder / dead / "link");
  remove_leftovers(FileOps::real(), folder.path(), [](const std::string& what) { FAIL(what); });
  // .replaced-checkpoint_2 is all that is left of checkpoint_2.
  CHECK(names_in(folder.path()) ==
        std::vector<std::string>{".replaced-checkpoint_2", alive, ".tmp-foreign", "checkpoint_1"});
  CHECK(contents_of(folder / "checkpoint_1" / "deep" / "file") == "x");
}

TEST_CASE("a folder with a number that none can follow is told once, and ignored",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 2, 5);
  for (const auto* stray : {"checkpoint_18446744073709551615", "checkpoint_9223372036854775808",
                            "checkpoint_100000000000000000000"})
    fs::create_directory(folder / stray);
  for (const auto* foreign : {"checkpoint_", "checkpoint_07", "checkpoint_9x", "checkpoint_-1"})
    fs::create_directory(folder / foreign);
  CHECK(list_checkpoints(folder.path()) == std::vector<std::uint64_t>{2});
  CHECK(names_above_all_numbers(folder.path()) ==
        std::vector<std::string>{"checkpoint_100000000000000000000",
                                 "checkpoint_18446744073709551615",
                                 "checkpoint_9223372036854775808"});
  std::vector<std::string> told;
  auto options = quiet_options(folder.path());
  options.tell = [&](const std::string& what) { told.push_back(what); };
  Checkpointer checkpoints{ProcessGroup::single(), options};
  SmallRun run{0, 1};
  CHECK(checkpoints.load(run.state()).has_value());
  CHECK(checkpoints.newest_number() == 2);
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0],
             Catch::Contains("checkpoint_18446744073709551615") && Catch::Contains("ignored"));
  CHECK_THROWS_WITH(checkpoints.save(kMaxCheckpointNumber + 1, run.state()),
                    Catch::Contains("numbers end at 9223372036854775807"));
}

TEST_CASE("what stands aside counts until it is replaced", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 2, 5);
  fs::rename(folder / "checkpoint_2", folder / ".replaced-checkpoint_2");
  CHECK(list_checkpoints(folder.path()) == std::vector<std::uint64_t>{2});
  CHECK(loaded_seed(folder.path(), 1) == 5);
  save_seed(folder.path(), 1, 2, 6);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_2"});
  CHECK(loaded_seed(folder.path(), 1) == 6);
}

TEST_CASE("folders are made with those above them", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  make_folders(FileOps::real(), folder / "a" / "b" / "c");
  CHECK(fs::is_directory(folder / "a" / "b" / "c"));
  make_folders(FileOps::real(), folder / "a" / "b" / "c");
  make_folders(FileOps::real(), folder / "a" / "d" / "");
  CHECK(fs::is_directory(folder / "a" / "d"));
  put_contents(folder / "file", "");
  CHECK_THROWS_WITH(make_folders(FileOps::real(), folder / "file"),
                    Catch::Contains("Not a directory"));
}

TEST_CASE("the folder is found again where the program changes its own", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "elsewhere");
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  {
    Checkpointer checkpoints{ProcessGroup::single(), quiet_options("here")};
    fs::current_path(folder / "elsewhere");
    SmallRun run{0, 1, 3};
    CHECK(checkpoints.save(1, run.state()) == folder / "here" / "checkpoint_1");
  }
  fs::current_path(before);
  CHECK(loaded_seed(folder / "here", 1) == 3);
}
