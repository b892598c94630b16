#include "common/unique_fd.hpp"
#include "runtime/checkpoint/known_checkpoints.hpp"
#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <sys/inotify.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

using namespace acc::testing;

TEST_CASE("what N ranks save they load again", "[runtime][checkpoint]") {
  const auto ranks = GENERATE(1, 2, 3, 4, 8);
  const TemporaryFolder folder;
  save_seed(folder.path(), ranks, 7, 42);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_7"});
  CHECK(loaded_seed(folder.path(), ranks) == 42);
}

TEST_CASE("no checkpoint is nothing, not an error", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  CHECK(loaded_seed(folder.path(), 2) == std::nullopt);
  CHECK(loaded_seed(folder / "never" / "made", 2) == std::nullopt);
}

TEST_CASE("the newest is that of the highest number", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  for (const int number : {9, 10, 2}) {
    save_seed(folder.path(), 2, static_cast<std::uint64_t>(number), number);
  }
  CHECK(loaded_seed(folder.path(), 2) == 10);
  CHECK(list_checkpoints(folder.path()) == std::vector<std::uint64_t>{10, 9, 2});
}

namespace {

/// Counts how often manifests are opened.
class ManifestReads {
 public:
  void watch(const fs::path& checkpoint) {
    REQUIRE(::inotify_add_watch(opened_.get(), checkpoint.c_str(), IN_OPEN) >= 0);
  }
  [[nodiscard]] int since_last_time() {
    int manifests = 0;
    alignas(inotify_event) std::array<char, 65536> events{};
    const auto length = ::read(opened_.get(), events.data(), events.size());
    for (std::ptrdiff_t at = 0; at < length;) {
      inotify_event event{};
      const auto* const first = events.data() + at;
      std::memcpy(&event, first, sizeof(event));
      if (event.len > 0 && std::string_view{first + sizeof(event)} == "manifest.json") ++manifests;
      at += static_cast<std::ptrdiff_t>(sizeof(event) + event.len);
    }
    return manifests;
  }

 private:
  acc::UniqueFd opened_{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
};

}  // namespace

TEST_CASE("each rank read the manifests of all checkpoints, for marks that rank 0 alone uses",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  ManifestReads reads;
  for (std::uint64_t number = 0; number < 8; ++number) {
    save_seed(folder.path(), 1, number, 1);
    reads.watch(folder / checkpoint_name(number));
  }
  std::atomic<int> right = 0;
  on_ranks(4, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    right += checkpoints.newest_number() == 7 ? 1 : 0;
  });
  CHECK(right == 4);
  CHECK(reads.since_last_time() == 8);
}

TEST_CASE("each save in a folder without locks read all manifests whole", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  ManifestReads reads;
  for (std::uint64_t number = 0; number < 3; ++number) {
    save_seed(folder.path(), 1, number, 1);
    reads.watch(folder / checkpoint_name(number));
  }
  auto now = std::chrono::system_clock::now();
  checkpoint::KnownCheckpoints known{[&] { return now; }};
  known.look(folder.path());
  CHECK(reads.since_last_time() == 3);
  // Just written: the next change may have the same time.
  CHECK(known.foreign(folder.path()).empty());
  CHECK(reads.since_last_time() == 3);
  now += std::chrono::hours{1};
  CHECK(known.foreign(folder.path()).empty());
  CHECK(reads.since_last_time() == 3);
  for (int save = 0; save < 3; ++save) CHECK(known.foreign(folder.path()).empty());
  CHECK(reads.since_last_time() == 0);
  // A touch costs one look.
  const auto touched = folder / checkpoint_name(0) / "manifest.json";
  fs::last_write_time(touched, fs::file_time_type::clock::now() - std::chrono::hours{1});
  for (int save = 0; save < 3; ++save) CHECK(known.foreign(folder.path()).empty());
  CHECK(reads.since_last_time() == 1);
  // Another text of the same size and time.
  const auto changed = folder / checkpoint_name(1) / "manifest.json";
  const auto time = fs::last_write_time(changed);
  flip(changed, 0, 1);
  fs::last_write_time(changed, time);
  for (int save = 0; save < 2; ++save)
    CHECK(known.foreign(folder.path()) == std::vector<std::uint64_t>{1});
}

TEST_CASE("foreign names in the folder are no checkpoints", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  for (const auto* name : {"checkpoint_", "checkpoint_07", "checkpoint_-1", "checkpoint_7x",
                           "checkpoint_1e3", "x", "checkpoint_99999999999999999999"}) {
    fs::create_directory(folder / name);
  }
  CHECK(list_checkpoints(folder.path()).empty());
  save_seed(folder.path(), 1, 7, 7, 1);
  CHECK(names_in(folder.path()).size() == 8);
  CHECK(loaded_seed(folder.path(), 1) == 7);
}

SCENARIO("old checkpoints go once a new one is complete", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  GIVEN("a limit of two") {
    for (int number = 0; number < 5; ++number) {
      save_seed(folder.path(), 2, static_cast<std::uint64_t>(number), number, 2);
    }
    THEN("the two newest are left") {
      CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_3", "checkpoint_4"});
    }
    WHEN("an older number is saved") {
      save_seed(folder.path(), 2, 1, 100, 2);
      THEN("it stays, and nothing of a higher number goes: that isn't older") {
        CHECK(names_in(folder.path()) ==
              std::vector<std::string>{"checkpoint_1", "checkpoint_3", "checkpoint_4"});
      }
    }
    WHEN("the newer of them is torn") {
      fs::remove(folder / "checkpoint_4" / "manifest.json");
      save_seed(folder.path(), 2, 5, 5, 2);
      THEN("it goes before the good one") {
        CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_3", "checkpoint_5"});
      }
    }
    WHEN("the newer of them was found corrupt by load") {
      auto bytes = contents_of(folder / "checkpoint_4" / "model.safetensors");
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      put_contents(folder / "checkpoint_4" / "model.safetensors", bytes);
      on_ranks(2, [&](ProcessGroup& group) {
        auto options = quiet_options(folder.path());
        options.keep_last = 2;
        Checkpointer checkpoints{group, options};
        SmallRun run{group.rank(), 2};
        const auto restored = checkpoints.load(run.state());
        if (!restored || restored->checkpoint.number() != 3) throw std::runtime_error{"not 3"};
        checkpoints.save(5, run.state());
      });
      THEN("it goes before the good one") {
        CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_3", "checkpoint_5"});
      }
    }
  }
  GIVEN("checkpoints of another run") {
    for (int number = 0; number < 3; ++number) {
      save_seed(folder.path(), 1, static_cast<std::uint64_t>(number), number);
    }
    WHEN("a run that hasn't loaded saves with a limit of one") {
      on_ranks(1, [&](ProcessGroup& group) {
        auto options = quiet_options(folder.path());
        options.keep_last = 1;
        Checkpointer checkpoints{group, options};
        SmallRun run{0, 1, 7};
        for (const std::uint64_t number : {10, 11, 12}) checkpoints.save(number, run.state());
      });
      THEN("it removes its own alone") {
        CHECK(list_checkpoints(folder.path()) == std::vector<std::uint64_t>{12, 2, 1, 0});
      }
    }
  }
  GIVEN("no limit") {
    for (int number = 0; number < 5; ++number) {
      save_seed(folder.path(), 1, static_cast<std::uint64_t>(number), number);
    }
    THEN("all stay") { CHECK(names_in(folder.path()).size() == 5); }
  }
}

TEST_CASE("a number that is saved again is replaced", "[runtime][checkpoint]") {
  const auto can_exchange = GENERATE(true, false);
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 3, 1);
  WatchedFileOps files{[](const FileEvent&) {}};
  files.can_exchange = can_exchange;
  on_ranks(2, [&](ProcessGroup& group) {
    auto checkpoints = checkpointer_with(group, quiet_options(folder.path()), files);
    SmallRun run{group.rank(), 2, 2};
    checkpoints.save(3, run.state());
  });
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_3"});
  CHECK(loaded_seed(folder.path(), 2) == 2);
}

TEST_CASE("a checkpoint under a path of one's own", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto path = folder / "runs" / "best" / "";
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder / "checkpoints")};
    SmallRun run{group.rank(), 2, 5};
    checkpoints.save_as(path, run.state());
    SmallRun again{group.rank(), 2};
    const auto restored = checkpoints.load_from(path, again.state());
    again.shared = restored.shared;
    again.per_rank = restored.per_rank;
    if (again != run) throw std::runtime_error{"it isn't what was saved"};
  });
  CHECK(names_in(folder / "runs") == std::vector<std::string>{"best"});
  CHECK_FALSE(fs::exists(folder / "checkpoints"));
}

namespace {

/// What the ranks of a save to `path` throw, each once; empty: nothing.
std::set<std::string> refusals(const fs::path& path) {
  std::mutex guard;
  std::set<std::string> words;
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options("unused")};
    SmallRun run{group.rank(), 2, 5};
    try {
      checkpoints.save_as(path, run.state());
    } catch (const Error& error) {
      const std::lock_guard lock{guard};
      words.insert(error.code() == ErrorCode::invalid_argument ? error.what() : "another code");
    }
  });
  return words;
}

}  // namespace

TEST_CASE("a save to a path with the user's own files removes none of them",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "data" / "deep");
  put_contents(folder / "data" / "deep" / "precious", "x");
  put_contents(folder / "file", "y");
  fs::create_directory(folder / "extension");
  put_contents(folder / "extension" / "manifest.json", R"({"manifest_version": 3})");
  fs::create_directory_symlink(folder / "data", folder / "link");
  fs::create_symlink("loop", folder / "loop");
  const auto before = names_in(folder.path());
  struct Case {
    const char* name;
    const char* words;
  };
  for (const auto& [name, words] : std::vector<Case>{{"data", "isn't a checkpoint"},
                                                     {"link", "isn't a checkpoint"},
                                                     {"file", "isn't a folder"},
                                                     {"loop", "isn't a folder"},
                                                     {"extension", "isn't that of a checkpoint"}}) {
    INFO(name);
    const auto said = refusals(folder / name);
    REQUIRE(said.size() == 1);
    CHECK_THAT(*said.begin(), Catch::Contains(words) && Catch::Contains("would be removed"));
    CHECK(names_in(folder.path()) == before);
  }
  CHECK(contents_of(folder / "data" / "deep" / "precious") == "x");
  CHECK(contents_of(folder / "file") == "y");
}

TEST_CASE("what a user put into a checkpoint's folder isn't gone after the next save to it",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto saved = folder / "best";
  REQUIRE(refusals(saved).empty());
  const auto manifest = contents_of(saved / "manifest.json");
  const auto refused = [&](const std::string& foreign) {
    const auto said = refusals(saved);
    REQUIRE(said.size() == 1);
    CHECK_THAT(*said.begin(), Catch::Contains("'" + saved.native() + "' is a checkpoint, and") &&
                                  Catch::Contains("also has '" + foreign + "'") &&
                                  Catch::Contains("would be removed"));
    CHECK(contents_of(saved / "manifest.json") == manifest);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"best"});
  };
  fs::create_directory(saved / "sub");
  put_contents(saved / "sub" / "precious", "x");
  refused("sub");
  CHECK(contents_of(saved / "sub" / "precious") == "x");
  put_contents(saved / "notes.txt", "mine");
  refused("notes.txt");  // by name the first of both
  CHECK(contents_of(saved / "notes.txt") == "mine");
  fs::remove_all(saved / "sub");
  fs::remove(saved / "notes.txt");
  fs::remove(saved / "state.json");  // a folder in the place of one of its files
  fs::create_directory(saved / "state.json");
  refused("state.json");
  fs::remove(saved / "state.json");
  CHECK(refusals(saved).empty());  // damaged, and nobody else's
}

TEST_CASE("a checkpoint without a path is an Error of this library", "[runtime][checkpoint]") {
  const auto empty = Catch::Contains("needs a path");
  const TemporaryFolder folder;
  Checkpointer checkpoints{ProcessGroup::single(), quiet_options(folder.path())};
  CHECK_THROWS_WITH(checkpoints.save_as("", {}), empty);
  CHECK_THROWS_WITH(checkpoints.load_from("", {}), empty);
  CHECK_THROWS_WITH((Checkpointer{ProcessGroup::single(), quiet_options("")}), empty);
  const auto before = fs::current_path();
  fs::create_directory(folder / "gone");
  fs::current_path(folder / "gone");
  fs::remove(folder / "gone");
  CHECK_THROWS_AS(checkpoints.save_as("here", {}), Error);
  fs::current_path(before);
}

TEST_CASE("a save doesn't replace the working directory, nor a folder above it",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "a" / "b");
  const auto before = fs::current_path();
  fs::current_path(folder / "a" / "b");
  const std::vector<std::set<std::string>> said{refusals("."), refusals(".."), refusals("/")};
  const bool is_there = fs::is_directory(folder / "a" / "b");
  fs::current_path(before);
  CHECK(is_there);
  for (const auto& words : said) {
    REQUIRE(words.size() == 1);
    CHECK_THAT(*words.begin(), Catch::Contains("working directory, or a folder above it") ||
                                   Catch::Contains("is the root folder"));
  }
}

TEST_CASE("a save to a link lands in the folder that it leads to", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "disk");
  fs::create_directory_symlink(folder / "disk", folder / "link");
  for (int i = 0; i < 2; ++i) {  // into an empty folder, then over a checkpoint
    CHECK(refusals(folder / "link").empty());
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(fs::exists(folder / "disk" / "manifest.json"));
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"disk", "link"});
}

TEST_CASE("a checkpoint's name may be as long as names can be", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  std::string name(254, 'n');
  name[200] = '\xc3';  // one character of two bytes
  name.insert(201, 1, '\xa4');
  for (int i = 0; i < 2; ++i) CHECK(refusals(folder / name).empty());
  CHECK(names_in(folder.path()) == std::vector<std::string>{name});
  CHECK(checkpoint::aside_of(folder / name).filename().native().size() <= 255);
}

TEST_CASE("the files of a checkpoint, as the documentation tells", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 7, 42);
  CHECK(names_in(folder / "checkpoint_7") ==
        std::vector<std::string>{
            "manifest.json", "model.safetensors", "optimizer-rank-00000-of-00002.safetensors",
            "optimizer-rank-00001-of-00002.safetensors", "optimizer.safetensors", "rank_0.json",
            "rank_1.json", "state.json"});
  CHECK(contents_of(folder / "checkpoint_7" / "state.json") ==
        "{\"sampler\":{\"epoch\":42,\"seen\":640}}\n");
}

TEST_CASE("a part above the limit is split, with an index", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  std::vector<float> a(100, 1.0F), b(100, 2.0F), c(100, 3.0F);
  on_ranks(2, [&](ProcessGroup& group) {
    auto options = quiet_options(folder.path());
    options.max_shard_bytes = 800;
    Checkpointer checkpoints{group, options};
    CheckpointState state;
    state.tensors = {{"a", std::span{a}},
                     {"b", std::span{b}},
                     {"c", std::span{c}, Placement::replicated},
                     {"d", std::span{c}, Placement::sharded},
                     {"e", std::span{b}, Placement::sharded},
                     {"f", std::span{a}, Placement::sharded}};
    checkpoints.save(0, state);
  });
  const auto names = names_in(folder / "checkpoint_0");
  CHECK(names == std::vector<std::string>{"manifest.json", "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "model-rank-00000-of-00002-00001-of-00002.safetensors",
                                          "model-rank-00000-of-00002-00002-of-00002.safetensors",
                                          "model-rank-00001-of-00002-00001-of-00002.safetensors",
                                          "model-rank-00001-of-00002-00002-of-00002.safetensors",
                                          "model.safetensors.index.json"});
  const Checkpoint checkpoint{folder / "checkpoint_0"};
  checkpoint.verify();
  auto c_again = checkpoint.read("model", "c");
  CHECK(c_again == HostTensor::of(std::span<const float>{c}, {100}));
  const auto d = checkpoint.read("model", "d");
  CHECK(d.shape() == Shape{200});
  const SafetensorsModel model{folder / "checkpoint_0"};
  CHECK(model.names() == std::vector<std::string>{"a", "b", "c"});
  CHECK(model.read("c") == c_again);
}

TEST_CASE("everybody hears when a checkpoint is complete", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  std::atomic<int> heard{0};
  on_ranks(3, [&](ProcessGroup& group) {
    auto options = quiet_options(folder.path());
    options.saved = [&](std::uint64_t number, const fs::path& path) {
      if (number == 11 && fs::exists(path / "manifest.json")) ++heard;
    };
    Checkpointer checkpoints{group, options};
    SmallRun run{group.rank(), 3, 1};
    const auto path = checkpoints.save(11, run.state());
    if (path != folder / "checkpoint_11") throw std::runtime_error{"another path"};
  });
  CHECK(heard == 1);
}
