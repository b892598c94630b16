#include "launcher/configure/save.hpp"

#include "launcher/configure/host_view.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

using acc::configure::check_place;
using acc::configure::save_file;
using acc::configure::text_of_file;
namespace fs = std::filesystem;

static std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}));
}

SCENARIO("a file is replaced as a whole", "[configure][save]") {
  const acc::testing::TestFolder folder;
  const auto path = (folder / "a.yaml").string();
  GIVEN("no file, in a folder that isn't there either") {
    const auto deep = (folder / "x/y/a.yaml").string();
    CHECK(check_place(deep).has_value());
    REQUIRE(save_file(deep, "new\n").has_value());
    CHECK(text_of_file(deep) == "new\n");
    CHECK(files_in(folder / "x/y") == 1);
  }
  GIVEN("a file with a mode of its own") {
    std::ofstream{path} << "old";
    fs::permissions(path, fs::perms{0640});
    REQUIRE(save_file(path, "new\n").has_value());
    THEN("it keeps the mode, and nothing lies beside it") {
      struct stat info {};
      REQUIRE(::stat(path.c_str(), &info) == 0);
      CHECK((info.st_mode & 0777U) == 0640U);
      CHECK(text_of_file(path) == "new\n");
      CHECK(files_in(folder.path()) == 1);
    }
  }
  GIVEN("a link to a file") {
    const auto target = (folder / "target.yaml").string();
    std::ofstream{target} << "old";
    fs::create_symlink("target.yaml", path);
    REQUIRE(save_file(path, "new\n").has_value());
    CHECK(fs::is_symlink(path));
    CHECK(text_of_file(target) == "new\n");
  }
  GIVEN("a link to a file that isn't there yet") {  // it was replaced by the file
    const auto target = (folder / "x/target.yaml").string();
    fs::create_symlink("x/target.yaml", path);
    CHECK(check_place(path).has_value());
    REQUIRE(save_file(path, "new\n").has_value());
    CHECK(fs::is_symlink(path));
    CHECK(text_of_file(target) == "new\n");
  }
  GIVEN("a folder of that name, and a place that is none") {
    fs::create_directory(path);
    CHECK_FALSE(save_file(path, "new\n").has_value());
    CHECK_FALSE(check_place(path).has_value());
    CHECK_FALSE(check_place("/dev/null/a.yaml").has_value());
    CHECK_FALSE(save_file("/proc/acc/a.yaml", "new\n").has_value());
    CHECK_FALSE(save_file("/dev/full", "new\n").has_value());
    CHECK(files_in(folder.path()) == 1);
  }
}
