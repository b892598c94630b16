#include "launcher/private_file.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

using namespace acc::launcher;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file() const { return path + "/.deepspeed_env"; }
  std::string path = "/tmp/acc-private-file-XXXXXX";
};

std::string refusal(const std::string& path) {
  const auto done = append_private(path, "TOKEN=secret\n");
  return done ? "" : done.error().what;
}

std::string text_of(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

TEST_CASE("the variables for deepspeed's other machines are appended to a file of this user alone",
          "[launcher]") {
  const Folder folder;
  std::ofstream{folder.file()} << "A=1\n";
  REQUIRE(::chmod(folder.file().c_str(), 0644) == 0);
  CHECK(refusal(folder.file()).empty());
  CHECK(text_of(folder.file()) == "A=1\nTOKEN=secret\n");
  struct stat info {};
  REQUIRE(::stat(folder.file().c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  fs::remove(folder.file());
  CHECK(refusal(folder.file()).empty());
  CHECK(text_of(folder.file()) == "TOKEN=secret\n");
}

TEST_CASE("secrets of the environment were appended to what another user planted as .deepspeed_env",
          "[launcher]") {
  const Folder folder;
  const auto target = folder.path + "/target";
  std::ofstream{target} << "theirs\n";
  std::string why;
  SECTION("a link") {
    fs::create_symlink(target, folder.file());
    why = "it is a symbolic link";
  }
  SECTION("a hard link") {
    fs::create_hard_link(target, folder.file());
    why = "it has another name elsewhere";
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(folder.file().c_str(), 0666) == 0);
    why = "it is no regular file";
  }
  SECTION("a file of theirs") {
    std::ofstream{folder.file()} << "B=2\n";
    if (::chown(folder.file().c_str(), 1001, 1001) != 0) {
      WARN("SKIPPED: needs root, to own a file as another user");
      return;
    }
    why = "it belongs to uid 1001";
  }
  CHECK_THAT(refusal(folder.file()), Catch::Contains(folder.file()) && Catch::Contains(why) &&
                                         Catch::Contains("remove it"));
  CHECK(text_of(target) == "theirs\n");
}

TEST_CASE(
    ".deepspeed_env was refused where the server of files gives it another owner (root_squash)",
    "[launcher]") {
  if (::geteuid() != 0) {
    WARN("SKIPPED: needs root");
    return;
  }
  const Folder folder;
  REQUIRE(::chmod(folder.path.c_str(), 01777) == 0);
  ::setfsuid(1001);  // the owner of what is made: as a server that takes root for another user
  const auto made = refusal(folder.file());
  const auto again = refusal(folder.file());
  const auto left = std::distance(fs::directory_iterator{folder.path}, fs::directory_iterator{});
  ::setfsuid(0);
  CHECK(made.empty());
  CHECK(again.empty());
  CHECK(left == 1);
  CHECK(text_of(folder.file()) == "TOKEN=secret\nTOKEN=secret\n");
  CHECK_THAT(refusal(folder.file()), Catch::Contains("it belongs to uid 1001"));
}

TEST_CASE(".deepspeed_env of the mode 0600 was refused where no mode can be set", "[launcher]") {
  const Folder folder;
  std::ofstream{folder.file()} << "A=1\n";
  REQUIRE(::chmod(folder.file().c_str(), 0600) == 0);
  const int file = ::open(folder.file().c_str(), O_RDONLY | O_CLOEXEC);
  const auto set = [&](int flags) { return ::ioctl(file, FS_IOC_SETFLAGS, &flags) == 0; };
  const bool is_append_only = set(FS_APPEND_FL);  // takes text, and no mode
  if (is_append_only) {
    const auto why = refusal(folder.file());
    CHECK(set(0));
    CHECK(why.empty());
    REQUIRE(::chmod(folder.file().c_str(), 0644) == 0);
    CHECK(set(FS_APPEND_FL));
    CHECK_THAT(refusal(folder.file()), Catch::Contains("Operation not permitted"));
    CHECK(set(0));
  } else {
    WARN("SKIPPED: no append-only files here");
  }
  ::close(file);
}
