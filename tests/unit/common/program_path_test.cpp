#include "common/program_path.hpp"

#include <catch2/catch.hpp>

using namespace acc;

TEST_CASE("a program is looked up on PATH as execvp does", "[common]") {
  CHECK(find_on_path("sh", "/nonexistent:/bin") == "/bin/sh");
  CHECK(find_on_path("./sh", "/bin") == "./sh");
  CHECK(find_on_path("no-such-program", "/bin:/usr/bin").empty());
  CHECK(find_on_path("passwd", "/etc").empty());  // there, but not executable
  CHECK(find_on_path("init.d", "/etc").empty());  // a folder
}
