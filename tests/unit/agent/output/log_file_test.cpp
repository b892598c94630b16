#include "agent/output/log_file.hpp"

#include "tests/unit/agent/output/support.hpp"

#include <sys/stat.h>

#include <fstream>
#include <random>

using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

std::string all_parts(const fs::path& path) {
  std::string all;
  for (int n = 2000; n > 0; --n) all += content(path.string() + "." + std::to_string(n));
  return all + content(path);
}

}  // namespace

TEST_CASE("a link, or a FIFO that nobody reads, in place of a log file", "[agent][output]") {
  Folder folder;
  const fs::path precious = folder.path / "precious";
  const fs::path path = folder.path / "stdout.log";
  std::ofstream{precious} << "keep";
  SECTION("a link: the file that it led to was emptied") { fs::create_symlink(precious, path); }
  SECTION("a second name of a file") { fs::create_hard_link(precious, path); }
  SECTION("a FIFO: open() waited for ever") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  LogFile file{path.string(), {}};
  CHECK_FALSE(file.open().has_value());
  CHECK(file.append("x").error != 0);
  CHECK(content(precious) == "keep");
}

SCENARIO("a log file rotates", "[agent][output]") {
  Folder folder;
  const fs::path path = folder.path / "0" / "stdout.log";
  std::mt19937 random{5};

  GIVEN("lines of all lengths and room for all parts") {
    LogFile file{path.string(), {.bytes = 1000, .keep = 2000}};
    std::string all;
    for (int i = 0; i < 400; ++i) {
      std::string chunk;
      for (auto n = random() % 5; n > 0; --n) chunk += std::string(random() % 200, 'a') + "\n";
      REQUIRE(file.append(chunk).error == 0);
      all += chunk;
    }
    THEN("the parts together are exactly what was written") { CHECK((all_parts(path) == all)); }
    THEN("each part is cut at a line end and no longer than asked") {
      for (int n = 1; fs::exists(path.string() + "." + std::to_string(n)); ++n) {
        const std::string part = content(path.string() + "." + std::to_string(n));
        CHECK(part.size() <= 1000);
        CHECK(part.back() == '\n');
      }
      CHECK(fs::exists(path.string() + ".10"));
    }
  }
  GIVEN("bytes without any line end") {
    LogFile file{path.string(), {.bytes = 1000, .keep = 2000}};
    const std::string all(300'000, 'x');
    for (std::size_t at = 0; at < all.size(); at += 700)
      REQUIRE(file.append(std::string_view{all}.substr(at, 700)).error == 0);
    THEN("it is cut all the same, and exact") {
      CHECK(fs::exists(path.string() + ".1"));
      CHECK((all_parts(path) == all));
    }
  }
  GIVEN("a chunk of a thousand lines at once") {
    LogFile file{path.string(), {.bytes = 100, .keep = 2000}};
    std::string all;
    for (int i = 0; i < 1000; ++i) all += "line " + std::to_string(i) + "\n";
    REQUIRE(file.append(all).bytes == all.size());
    THEN("nothing is lost") { CHECK((all_parts(path) == all)); }
  }
  GIVEN("two old files to keep") {
    LogFile file{path.string(), {.bytes = 10, .keep = 2}};
    for (int i = 0; i < 6; ++i)
      REQUIRE(file.append("line-" + std::to_string(i) + "--\n").error == 0);
    THEN("the newest stay") {
      CHECK(content(path) == "line-5--\n");
      CHECK(content(path.string() + ".1") == "line-4--\n");
      CHECK(content(path.string() + ".2") == "line-3--\n");
      CHECK_FALSE(fs::exists(path.string() + ".3"));
    }
  }
  GIVEN("none to keep") {
    LogFile file{path.string(), {.bytes = 10, .keep = 0}};
    for (int i = 0; i < 3; ++i)
      REQUIRE(file.append("line-" + std::to_string(i) + "--\n").error == 0);
    THEN("the file starts again") {
      CHECK(content(path) == "line-2--\n");
      CHECK_FALSE(fs::exists(path.string() + ".1"));
    }
  }
}

SCENARIO("a log file's folder went away", "[agent][output]") {
  Folder folder;
  LogFile file{(folder.path / "a" / "b" / "stderr.log").string(), {}};
  CHECK(file.append("made when needed\n").error == 0);
  CHECK(content(file.path()) == "made when needed\n");
}

TEST_CASE("a log file that was removed while the job ran took all that followed with it",
          "[agent][output]") {
  Folder folder;
  const fs::path path = folder.path / "stdout.log";
  SECTION("without rotation") {
    LogFile file{path.string(), {}};
    CHECK(file.append("before\nha").error == 0);
    fs::remove(path);
    CHECK(file.append("after\n").error == 0);
    CHECK(content(path) == "after\n");
  }
  SECTION("each rotation then cost one of the parts that are kept") {
    LogFile file{path.string(), {.bytes = 10, .keep = 2}};
    for (int i = 0; i < 4; ++i)
      REQUIRE(file.append("line-" + std::to_string(i) + "--\n").error == 0);
    fs::remove(path);
    REQUIRE(file.append("line-4--\n").error == 0);
    CHECK(content(path) == "line-4--\n");
    CHECK(content(path.string() + ".1") == "line-2--\n");
    CHECK(content(path.string() + ".2") == "line-1--\n");
  }
}

SCENARIO("a full device says so, and how much it took", "[agent][output]") {
  LogFile file{"/dev/full", {}};
  const auto written = file.append("hello\n");
  CHECK(written.bytes == 0);
  CHECK(written.error == ENOSPC);
  CHECK(LogFile{"/proc/no/such/folder/x", {}}.append("y").error != 0);
}
