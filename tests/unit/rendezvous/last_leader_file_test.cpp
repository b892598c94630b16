#include "rendezvous/last_leader_file.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace acc;
using namespace acc::rendezvous;

namespace {

/// A runtime folder of its own for the time of a test.
class RuntimeFolder {
 public:
  RuntimeFolder()
      : path_{std::filesystem::temp_directory_path() / ("acc-note-" + std::to_string(::getpid()))} {
    std::filesystem::create_directories(path_);
    ::setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeFolder() {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(path_);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{path_},
                                                  std::filesystem::directory_iterator{}));
  }
  [[nodiscard]] std::filesystem::path only_file() const {
    return std::filesystem::directory_iterator { path_ } -> path();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

SCENARIO("a coordinator that is started again knows that one was here",
         "[rendezvous][last_leader_file]") {
  const RuntimeFolder folder;
  const LastLeaderFile note{"job 7", 29400};
  CHECK_FALSE(note.age());
  note.renew();
  CHECK(note.age().value() < Millis{5'000});

  THEN("another job, or the same one at another port, is none of its business") {
    CHECK_FALSE(LastLeaderFile("job 8", 29400).age());
    CHECK_FALSE(LastLeaderFile("job 7", 29401).age());
    CHECK(LastLeaderFile("job 7", 29400).age());
  }
  THEN("a proper end leaves nothing") {
    note.remove();
    CHECK_FALSE(LastLeaderFile("job 7", 29400).age());
    CHECK(folder.files() == 0);
  }
  THEN("a note of another boot, or no note at all, counts for nothing") {
    for (const char* const text : {"99999999999999\n", "-5\n", "noise", ""}) {
      std::ofstream{folder.only_file(), std::ios::trunc} << text;
      INFO(text);
      CHECK_FALSE(note.age().value_or(Millis{0}) > Millis{0});
    }
  }
  THEN("old ones are swept by the next coordinator") {
    const auto old = std::filesystem::last_write_time(folder.only_file()) - std::chrono::hours{2};
    std::filesystem::last_write_time(folder.only_file(), old);
    const LastLeaderFile next{"job 9", 29400};
    CHECK(folder.files() == 0);
  }
}

TEST_CASE("what another one put in the place of a note neither hangs nor misleads a coordinator",
          "[rendezvous][last_leader_file]") {
  const RuntimeFolder folder;
  const LastLeaderFile note{"job 7", 29400};
  note.renew();
  const auto path = folder.only_file();
  SECTION("a FIFO") {
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
    CHECK_FALSE(note.age());
    note.renew();
    CHECK(std::filesystem::is_fifo(path));
  }
  SECTION("a symbolic link") {
    const auto target = path.parent_path() / "target";
    std::ofstream{target} << "1\n";
    std::filesystem::remove(path);
    std::filesystem::create_symlink(target, path);
    CHECK_FALSE(note.age());
    note.renew();
    std::string text;
    std::getline(std::ifstream{target} >> std::ws, text);
    CHECK(text == "1");
  }
  SECTION("a second name of a file of ours") {
    const auto target = path.parent_path() / "target";
    std::ofstream{target} << "1\n";
    std::filesystem::remove(path);
    std::filesystem::create_hard_link(target, path);
    note.renew();
    CHECK(std::filesystem::file_size(target) == 2);
  }
}

TEST_CASE("another user's file switched off the wait for old leases",
          "[rendezvous][last_leader_file]") {
  const RuntimeFolder here;
  const auto shared = here.path() / "shared";
  const auto spare = here.path() / "spare";
  for (const auto& folder : {shared, spare}) std::filesystem::create_directory(folder);
  const std::string own = "acc-launch-" + std::to_string(::geteuid());
  ::unsetenv("XDG_RUNTIME_DIR");
  SECTION("a folder of ours is made") {
    const LastLeaderFile note{"job 7", 29400, {shared, spare}};
    note.renew();
    CHECK(note.age());
    CHECK(std::filesystem::status(shared / own).permissions() == std::filesystem::perms::owner_all);
    CHECK(LastLeaderFile("job 7", 29400, {shared, spare}).age());
  }
  SECTION("its name was taken by a link, a file, or a folder for all") {
    std::filesystem::create_directory(shared / "other");
    const int what = GENERATE(0, 1, 2);
    if (what == 0) std::filesystem::create_symlink(shared / "other", shared / own);
    if (what == 1) std::ofstream{shared / own} << "x";
    if (what == 2) {
      std::filesystem::create_directory(shared / own);
      std::filesystem::permissions(shared / own, std::filesystem::perms::all);
    }
    // The next folder serves; where there is none a coordinator may have been active until now.
    CHECK_FALSE(LastLeaderFile("job 7", 29400, {shared, spare}).age());
    CHECK(LastLeaderFile("job 7", 29400, {shared}).age() == Millis{0});
    LastLeaderFile("job 7", 29400, {shared, spare}).renew();
    std::filesystem::remove_all(shared / own);  // by who took it
    CHECK(LastLeaderFile("job 7", 29400, {shared, spare}).age());
  }
}
