#include "agent/small_file.hpp"

#include "agent/guardian.hpp"
#include "agent/report_file.hpp"
#include "common/unique_fd.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
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

TEST_CASE("root's report went where another user's link in a shared folder pointed to", "[agent]") {
  constexpr uid_t kOther = 1001;
  const acc::testing::TestFolder folder;
  const auto shared = folder / "shared";
  const auto target = folder / "target";
  const auto link = (shared / "report.json").string();
  fs::create_directory(shared);
  fs::create_symlink(target, link);
  const auto make_sticky = [&] { return ::chmod(shared.c_str(), S_ISVTX | 0777) == 0; };
  if (::lchown(link.c_str(), kOther, kOther) != 0) {
    WARN("needs root: skipped");
    return;
  }

  CHECK(write_whole_file(link, "text").has_value());  // as any program follows it
  fs::remove(target);
  REQUIRE(make_sticky());
  const auto written = write_whole_file(link, "text");
  REQUIRE(written.has_error());
  CHECK(written.error().what == "write '" + link + "': Permission denied");
  CHECK_FALSE(fs::exists(target));
  // Through one to a device root's disk was written over.
  const auto to_device = (shared / "device").string();
  fs::create_symlink("/dev/null", to_device);
  REQUIRE(::lchown(to_device.c_str(), kOther, kOther) == 0);
  CHECK(write_whole_file(to_device, "text").has_error());
  REQUIRE(::lchown(link.c_str(), ::geteuid(), ::getegid()) == 0);
  CHECK(write_whole_file(link, "text").has_value());
  CHECK(read_small_file(target.string()) == "text");
}

TEST_CASE("a report was written over files that another user had made in a shared folder",
          "[agent]") {
  constexpr uid_t kOther = 1001;
  const acc::testing::TestFolder folder;
  const auto shared = folder / "shared";
  const auto mine = (folder / "mine").string();
  const auto planted = (shared / "report.json").string();
  const auto link = (shared / "link.json").string();
  fs::create_directory(shared);
  REQUIRE(write_whole_file(mine, "mine").has_value());
  REQUIRE(write_whole_file(planted, "").has_value());
  fs::create_symlink(mine, link);
  if (::lchown(link.c_str(), kOther, kOther) != 0) {
    WARN("needs root: skipped");
    return;
  }
  REQUIRE(::chown(planted.c_str(), kOther, kOther) == 0);
  REQUIRE(::chmod(shared.c_str(), S_ISVTX | 0777) == 0);

  // A link that write_whole_file refused was followed by what comes after it.
  CHECK(write_report_file(link, "text", {}).has_error());
  CHECK(read_small_file(mine) == "mine");
  CHECK(overwrite_file(planted, "text").error().errnum == EACCES);
  const auto second_name = (shared / "hard.json").string();
  fs::create_hard_link(mine, second_name);
  CHECK(overwrite_file(second_name, "text").error().errnum == EACCES);
  CHECK(read_small_file(mine) == "mine");
  fs::remove(second_name);
  fs::rename(mine, shared / "mine");
  CHECK(overwrite_file((shared / "mine").string(), "text").has_value());
}

TEST_CASE("what is written over a file has nothing of the old text behind it", "[agent]") {
  const acc::testing::TestFolder folder;
  const auto file = (folder / "file").string();
  CHECK(write_whole_file(file, "a long first text", 65536).has_value());
  CHECK(fs::file_size(file) == 17);  // what is reserved doesn't show
  CHECK(overwrite_file(file, "short").has_value());
  CHECK(read_small_file(file) == "short");
  CHECK(overwrite_file(file, "longer again").has_value());
  CHECK(read_small_file(file) == "longer again");
  CHECK(overwrite_file((folder / "none").string(), "x").has_error());
  CHECK(overwrite_file("/dev/null", "x").has_error());
}

TEST_CASE("a report for which there is no room didn't stay at running", "[agent]") {
  const acc::testing::TestFolder folder;
  const auto file = (folder / "report.json").string();
  write_running_report(file, {});
  REQUIRE(read_small_file(file).find("running") != std::string::npos);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto written = write_report_file(file, std::string(5000, 'x'), {"failed", 3, "why", 7});
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK(written.error().what == "write '" + file + "': File too large");
  CHECK(read_small_file(file) == to_json({"failed", 3, "why", 7}));
}

TEST_CASE("a file that has no name, as the memory of another process, is written in place",
          "[agent]") {
  const UniqueFd memory{::memfd_create("small-file-test", MFD_CLOEXEC)};
  REQUIRE(memory);
  const auto path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.get());
  CHECK(write_whole_file(path, "a long first text", 65536).has_value());
  CHECK(write_whole_file(path, "short").has_value());
  CHECK(read_small_file(path) == "short");
  CHECK(::access("/memfd:small-file-test (deleted)", F_OK) != 0);
}

TEST_CASE("a small file that can't be read isn't one that is missing", "[agent]") {
  CHECK(read_if_there("/no/such/file") == Result<std::string>{""});
  CHECK(read_if_there("/proc/0/stat") == Result<std::string>{""});
  CHECK(read_if_there("/proc/self/comm").value().ends_with("\n"));
  const auto folder = read_if_there("/proc");
  REQUIRE(folder.has_error());
  CHECK(folder.error().what == "read '/proc': Is a directory");
}
