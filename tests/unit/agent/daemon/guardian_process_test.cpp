#include "agent/daemon/guardian_process.hpp"

#include "agent/small_file.hpp"
#include "common/clocks.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kUser = 64'321;  // has no other process

/// A folder of the user's, and a path to it that the kernel follows for a millisecond or more.
class SlowFolder {
 public:
  SlowFolder() {
    fs::create_directories(path_ / "x");
    constexpr int kLinks = 38;
    std::string detour;
    for (int i = 0; i < 800; ++i) detour += "x/../";
    for (int i = 0; i < kLinks; ++i)
      fs::create_symlink(detour + (i == 0 ? "x" : "l" + std::to_string(i - 1)),
                         path_ / ("l" + std::to_string(i)));
    fs::permissions(path_, fs::perms::all);
  }
  ~SlowFolder() { fs::remove_all(path_); }
  SlowFolder(const SlowFolder&) = delete;
  SlowFolder& operator=(const SlowFolder&) = delete;
  [[nodiscard]] fs::path path() const { return path_; }
  [[nodiscard]] std::string slow_path() const { return path_ / "l37"; }

 private:
  fs::path path_ = fs::temp_directory_path() / ("acc-guardian-" + std::to_string(::getpid()));
};

/// Stops it as soon as it belongs to the user, as another process of the user's could.
void stop_when_it_is_the_users(pid_t pid) {
  const auto status = "/proc/" + std::to_string(pid) + "/status";
  const auto users = "\nUid:\t" + std::to_string(kUser) + "\t";
  const auto until = clock_now() + std::chrono::seconds{10};
  while (agent::read_small_file(status).find(users) == std::string::npos && clock_now() < until) {
  }
  ::kill(pid, SIGSTOP);
  while (agent::read_small_file(status).find("\nState:\tT") == std::string::npos &&
         clock_now() < until) {
  }
}

bool holds(pid_t pid, const fs::path& file) {
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    if (fs::read_symlink(fd.path(), gone) == file) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a job's user stopped the daemon's child, which then held the daemon's lock and ports",
          "[daemon]") {
  if (::geteuid() != 0) {
    WARN("only root starts processes of another user: skipped");
    return;
  }
  const SlowFolder folder;
  const fs::path lock = folder.path() / "lock";
  const UniqueFd held{::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  REQUIRE(held);
  GuardianRequest request;
  request.launcher = "/bin/true";
  request.user.uid = request.user.gid = kUser;
  request.user.name = "somebody";
  request.working_directory = folder.slow_path();
  request.user_folder = folder.path();
  constexpr int kTries = 10;  // one that was slow proves nothing
  for (int i = 0; i < kTries; ++i) {
    auto child = HeldGuardian::fork(request);
    REQUIRE(child.has_value());
    stop_when_it_is_the_users(child->pid());
    CHECK_FALSE(holds(child->pid(), lock));
    ::kill(child->pid(), SIGKILL);
    ::waitpid(child->pid(), nullptr, 0);
  }
}
