// What a state folder does on a disk that lacks calls, or whose calls fail: those below stand
// before the C library's for all of this program.
#include "agent/daemon/job_folder.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;
namespace fs = std::filesystem;

namespace {

/// What the disk answers; 0: as it is.
struct Disk {
  int to_flags_of_rename = 0;
  int to_sync_of_folder = 0;
};
Disk disk;

/// Until the end of a test.
struct DiskGuard {
  DiskGuard() = default;
  ~DiskGuard() { disk = {}; }
  DiskGuard(const DiskGuard&) = delete;
  DiskGuard& operator=(const DiskGuard&) = delete;
};

bool is_folder(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
}

int fail_with(int why) {
  errno = why;
  return -1;
}

}  // namespace

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (flags != 0 && disk.to_flags_of_rename != 0) return fail_with(disk.to_flags_of_rename);
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

extern "C" int fsync(int fd) {
  if (disk.to_sync_of_folder != 0 && is_folder(fd)) return fail_with(disk.to_sync_of_folder);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace {

StoredJob new_job(const std::string& id) {
  StoredJob job;
  job.id = id;
  job.uid = ::geteuid();
  job.gid = ::getegid();
  job.submission.edit().words = {"true"};
  job.submission.edit().working_directory = "/";
  return job;
}

}  // namespace

TEST_CASE("no job could be submitted where the state folder is on NFS: Invalid argument",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  auto state = StateFolder::open(folder.path().string());
  REQUIRE(state.has_value());
  const DiskGuard restored;
  disk.to_flags_of_rename = GENERATE(EINVAL, ENOSYS, EOPNOTSUPP);
  SECTION("which doesn't sync folders either") { disk.to_sync_of_folder = EINVAL; }
  SECTION("and says so in other words") { disk.to_sync_of_folder = EOPNOTSUPP; }
  SECTION("which syncs folders") {}
  const auto job = new_job("a-000000");
  const auto made = state->make_job(job, nullptr);
  REQUIRE(made == Result<void>{});
  CHECK(state->write_record(job.id, encode_job(job)) == Result<void>{});
  CHECK(state->write_note("drained", "x") == Result<void>{});
  CHECK(state->write_note("drained", "") == Result<void>{});
  CHECK(state->read_jobs().jobs.size() == 1);
  SECTION("an id whose folder is there is refused, and that one is left as it was") {
    std::ofstream{folder / "jobs/a-000000/user/started"} << "x";
    CHECK(state->make_job(job, nullptr).has_error());
    CHECK(fs::exists(folder / "jobs/a-000000/user/started"));
    CHECK(state->read_jobs().jobs.size() == 1);
  }
  CHECK(state->drop_job(job.id) == Result<void>{});
  CHECK(state->read_jobs().jobs.empty());
}
