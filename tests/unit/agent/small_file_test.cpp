#include "agent/small_file.hpp"

#include <catch2/catch.hpp>

#include <stdlib.h>

#include <filesystem>

using namespace acc;
using namespace acc::agent;
namespace fs = std::filesystem;

TEST_CASE("a report written to a device doesn't replace the device", "[agent]") {
  CHECK(write_whole_file("/dev/null", "text").has_value());
  CHECK(fs::is_character_file("/dev/null"));
  const auto full = write_whole_file("/dev/full", "text");
  REQUIRE(full.has_error());
  CHECK(full.error().what == "write '/dev/full': No space left on device");
  CHECK(fs::is_character_file("/dev/full"));
}

TEST_CASE("a file is replaced as a whole, also through a link", "[agent]") {
  char base[] = "/tmp/acc-whole-file-XXXXXX";
  REQUIRE(::mkdtemp(base) != nullptr);
  const std::string file = std::string{base} + "/file";
  const std::string link = std::string{base} + "/link";
  CHECK(write_whole_file(file, "one").has_value());
  fs::create_symlink(file, link);
  CHECK(write_whole_file(link, "two").has_value());
  CHECK(fs::is_symlink(link));
  CHECK(read_small_file(file) == "two");
  CHECK(std::distance(fs::directory_iterator{base}, fs::directory_iterator{}) ==
        2);  // nothing beside
  CHECK(write_whole_file(std::string{base} + "/none/file", "x").has_error());
  fs::remove_all(base);
}
