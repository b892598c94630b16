#include "agent/output/run_folder.hpp"

#include "tests/unit/agent/output/support.hpp"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

using namespace acc;
using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

/// $TMPDIR, as long as it lives.
struct TemporaryFolder : Folder {
  TemporaryFolder() {
    if (const char* before = ::getenv("TMPDIR")) kept = before;
    ::setenv("TMPDIR", path.c_str(), 1);
  }
  ~TemporaryFolder() { kept.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string kept;
};

}  // namespace

TEST_CASE("a run without logs leaves no folder behind", "[agent]") {
  std::string path;
  {
    RunFolder folder{{}, "none", "", "abcdefgh"};
    const auto attempt = folder.make_attempt(Round{0});
    CHECK(folder.make_worker(Round{0}, LocalRank{2}));
    path = folder.path();
    CHECK(fs::is_directory(attempt + "/2"));
    CHECK((fs::status(path).permissions() & fs::perms::others_all) == fs::perms::none);
  }
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("logs stay, and a run id can't climb out of the log folder", "[agent]") {
  char base[] = "/tmp/acc-run-folder-XXXXXX";
  REQUIRE(::mkdtemp(base) != nullptr);
  OutputPlan output;
  output.log_dir = std::string{base} + "/logs";
  {
    RunFolder folder{output, "../../evil", "", "abcdefgh"};
    REQUIRE_FALSE(folder.make_attempt(Round{1}).empty());
    CHECK(folder.path() == output.log_dir + "/.._.._evil_abcdefgh");
  }
  CHECK(fs::is_directory(output.log_dir + "/.._.._evil_abcdefgh/attempt_1"));
  fs::remove_all(base);
}

TEST_CASE("everybody could read the log files of --tee in the folder for temporary files",
          "[agent]") {
  const TemporaryFolder temporary;
  OutputPlan output;
  output.redirects.all = Streams::both;
  RunFolder folder{output, "none", "", "abcdefgh"};
  REQUIRE_FALSE(folder.make_attempt(Round{0}).empty());
  const auto others = fs::perms::others_all | fs::perms::group_all;
  CHECK((fs::status(folder.path()).permissions() & others) == fs::perms::none);
}

TEST_CASE("a link in place of the run folder led to the folders of others, which were emptied",
          "[agent]") {
  const TemporaryFolder temporary;
  RunFolder folder{{}, "none", "", "abcdefgh"};
  REQUIRE_FALSE(folder.make_attempt(Round{0}).empty());
  const auto others = temporary.path / "others";
  fs::create_directories(others / "attempt_0" / "precious");
  fs::create_directories(others / "attempt_1");
  fs::rename(folder.path(), temporary.path / "away");
  bool is_link = false;
  SECTION("a link to the folder") {
    fs::create_directory_symlink(others, folder.path());
    is_link = true;
  }
  SECTION("a folder with a link in it") {
    fs::create_directory(folder.path());
    fs::create_directory_symlink(others / "attempt_0", folder.path() + "/attempt_0");
  }
  CHECK(folder.forget_some(Round{1}));
  CHECK(fs::exists(others / "attempt_0" / "precious"));
  CHECK(folder.make_attempt(Round{2}).empty() == is_link);  // the other one is our own
  CHECK_FALSE(fs::exists(others / "attempt_2"));
}

TEST_CASE("a TMPDIR in which others may replace what is there isn't used", "[agent]") {
  const TemporaryFolder temporary;
  const auto detour = [&](mode_t mode) {
    REQUIRE(::chmod(temporary.path.c_str(), mode) == 0);
    return RunFolder{{}, "none", "", "abcdefgh"}.detour();
  };
  CHECK(detour(0777).find("others may replace what lies there: chmod +t") != std::string::npos);
  CHECK(detour(01777).empty());
  CHECK(detour(0775).empty());
  CHECK(detour(0700).empty());
  if (::geteuid() == 0) {
    REQUIRE(::chown(temporary.path.c_str(), 0, 2000) == 0);  // a group that isn't this user's
    CHECK(detour(0775).find("others may replace what lies there") != std::string::npos);
    CHECK(detour(01775).empty());
    REQUIRE(::chown(temporary.path.c_str(), 1002, 1002) == 0);
    CHECK(detour(0755).find("belongs to another user") != std::string::npos);
  }
}

TEST_CASE("machines that share the log folder are told apart", "[agent]") {
  OutputPlan output;
  output.log_dir = "/logs";
  CHECK(RunFolder{output, "night", "node/7", "abcdefgh"}.path() == "/logs/night_node_7_abcdefgh");
}

TEST_CASE("a disk that refuses costs the error files, not the job", "[agent]") {
  OutputPlan output;
  output.log_dir = "/proc/nowhere";
  RunFolder folder{output, "none", "", "abcdefgh"};
  CHECK(folder.make_attempt(Round{0}).empty());
}

TEST_CASE("log files went where another user wanted, who had made a removed run folder anew",
          "[agent][output]") {
  Folder folder;
  const auto run = folder.path / "run_1";
  const auto of_worker = (run / "attempt_0" / "0").string();
  REQUIRE(make_worker_folder(of_worker, true).has_value());
  REQUIRE(make_worker_folder(of_worker, true).has_value());  // it is there
  fs::remove_all(run);
  fs::create_symlink(folder.path, run);
  CHECK(make_worker_folder(of_worker, true).error().errnum == EPERM);
  fs::remove(run);
  fs::create_directory(run);
  constexpr uid_t kOther = 1001;
  if (::chown(run.c_str(), kOther, kOther) != 0) return;  // only root can
  CHECK(make_worker_folder(of_worker, true).error().errnum == EPERM);
  CHECK_FALSE(fs::exists(run / "attempt_0"));
  CHECK(make_worker_folder((run / "attempt_1" / "0").string(), false).has_value());
}

SCENARIO("the latest run is one link away", "[agent][output]") {
  Folder folder;
  REQUIRE(
      make_worker_folder((folder.path / "run_1" / "attempt_0" / "0").string(), true).has_value());
  REQUIRE(
      make_worker_folder((folder.path / "run_2" / "attempt_0" / "0").string(), false).has_value());
  for (const auto* made : {"run_1", "run_1/attempt_0", "run_1/attempt_0/0"})
    CHECK((fs::status(folder.path / made).permissions() & fs::perms::mask) == fs::perms::owner_all);
  REQUIRE(link_latest(folder.path.string(), (folder.path / "run_1").string()).has_value());
  REQUIRE(link_latest(folder.path.string(), (folder.path / "run_2").string()).has_value());
  CHECK(fs::read_symlink(folder.path / "latest") == "run_2");
}
