// What a state folder does on a disk that lacks calls, or whose calls fail: those below stand
// before the C library's for all of this program.
#include "agent/daemon/job_files.hpp"
#include "agent/daemon/job_folder.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

using namespace acc;
using namespace acc::agent::daemon;
namespace fs = std::filesystem;

namespace {

/// What the disk answers; 0: as it is.
struct Disk {
  int to_flags_of_rename = 0;
  int to_sync_of_folder = 0;
  int to_sync_of_jobs = 0;       ///< of the folder "jobs"
  int syncs_of_jobs_left = 100;  ///< that fail so
  int to_rename_from_new = 0;    ///< of a folder ".new-…": it is done all the same
  int to_rename_to_new = 0;
  int to_list_of = 0;  ///< of the folder `unlisted`, behind its first entries
  std::string unlisted{};
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

std::string name_of_open(int fd) {
  std::error_code none;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), none).filename().string();
}

bool is_jobs_folder(int fd) { return name_of_open(fd) == "jobs"; }

bool is_new(const char* name) { return std::string_view{name}.starts_with(".new-"); }

int fail_with(int why) {
  errno = why;
  return -1;
}

}  // namespace

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (flags != 0 && disk.to_flags_of_rename != 0) return fail_with(disk.to_flags_of_rename);
  if (is_new(to) && disk.to_rename_to_new != 0) return fail_with(disk.to_rename_to_new);
  const auto done = ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  if (is_new(from) && disk.to_rename_from_new != 0) return fail_with(disk.to_rename_from_new);
  return static_cast<int>(done);
}

extern "C" int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return renameat2(from_folder, from, to_folder, to, 0);
}

extern "C" dirent* readdir(DIR* entries) {
  static auto* const kReal = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  dirent* const entry = kReal(entries);
  const bool is_behind = entry == nullptr && disk.to_list_of != 0;
  if (is_behind && name_of_open(::dirfd(entries)) == disk.unlisted) errno = disk.to_list_of;
  return entry;
}

extern "C" int fsync(int fd) {
  if (disk.to_sync_of_jobs != 0 && is_jobs_folder(fd) && disk.syncs_of_jobs_left-- > 0)
    return fail_with(disk.to_sync_of_jobs);
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
  CHECK(state->read_jobs()->jobs.size() == 1);
  SECTION("an id whose folder is there is refused, and that one is left as it was") {
    std::ofstream{folder / "jobs/a-000000/user/started"} << "x";
    CHECK(state->make_job(job, nullptr).has_error());
    CHECK(fs::exists(folder / "jobs/a-000000/user/started"));
    CHECK(state->read_jobs()->jobs.size() == 1);
  }
  CHECK(state->drop_job(job.id) == Result<void>{});
  CHECK(state->read_jobs()->jobs.empty());
}

TEST_CASE("a submission that was answered as failed ran at the next start of acc-agent",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto path = folder.path().string();
  {
    auto state = StateFolder::open(path);
    REQUIRE(state.has_value());
    const DiskGuard restored;
    SECTION("as its name wasn't synced") {
      disk.to_sync_of_jobs = EIO;
      disk.syncs_of_jobs_left = 1;
    }
    SECTION("as the reply of a file server was lost") { disk.to_rename_from_new = EIO; }
    const auto made = state->make_job(new_job("a-000000"), nullptr);
    REQUIRE(made.has_error());
    CHECK(made.error().errnum == EIO);
    CHECK_THAT(made.error().what,
               Catch::StartsWith("make the job's folder in '" + path + "/jobs'"));
    CHECK(made.error().what.ends_with(": Input/output error"));
  }
  auto state = StateFolder::open(path);
  REQUIRE(state.has_value());
  CHECK(state->read_jobs()->jobs.empty());
  CHECK(fs::is_empty(folder / "jobs"));
}

TEST_CASE("a failed submission says so if its job may run all the same", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto path = folder.path().string();
  auto state = StateFolder::open(path);
  REQUIRE(state.has_value());
  const DiskGuard restored;
  disk.to_sync_of_jobs = EIO;
  SECTION("as its folder can't be renamed") { disk.to_rename_to_new = EROFS; }
  SECTION("as its removal isn't certain after a loss of power") {}
  const auto made = state->make_job(new_job("a-000000"), nullptr);
  REQUIRE(made.has_error());
  const std::string why = disk.to_rename_to_new != 0
                              ? "rename it: Read-only file system"
                              : "sync the folder of jobs: Input/output error";
  CHECK(made.error().what ==
        "make the job's folder in '" + path +
            "/jobs': sync the folder of jobs: Input/output error; its removal failed, too (" + why +
            "): if the folder 'a-000000' is there, remove it, or the job runs when acc-agent is "
            "restarted");
}

TEST_CASE("a failed submission leaves the folder of another job with its id", "[daemon]") {
  const acc::testing::TestFolder folder;
  auto state = StateFolder::open(folder.path().string());
  REQUIRE(state.has_value());
  REQUIRE(state->make_job(new_job("a-000000"), nullptr).has_value());
  CHECK(state->make_job(new_job("a-000000"), nullptr).has_error());
  CHECK(fs::exists(folder / "jobs/a-000000/job.json"));
  CHECK(state->read_jobs()->jobs.size() == 1);
}

TEST_CASE("jobs were forgotten, and their files' jobs stopped, as a folder was read in part",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  auto state = StateFolder::open(folder.path().string());
  REQUIRE(state.has_value());
  REQUIRE(state->make_job(new_job("a-000000"), nullptr).has_value());
  fs::create_directories(folder / "jobs/.new-half");
  fs::create_directories(folder / "jobs/none-000000");
  fs::create_directories(folder / "jobs.d");
  const auto job_files = (folder / "jobs.d").string();
  const auto fails = [](const auto& result, const std::string& what) {
    REQUIRE(result.has_error());
    CHECK(result.error().errnum == EIO);
    CHECK(result.error().what == what + "': Input/output error");
  };
  const DiskGuard restored;
  disk.to_list_of = EIO;
  disk.unlisted = "jobs";
  fails(state->read_jobs(), "read the folder '" + state->path() + "/jobs");
  CHECK(fs::exists(folder / "jobs/.new-half"));
  disk.unlisted = "trash";
  fails(state->trash(), "read the folder '" + state->path() + "/trash");
  disk.unlisted = "jobs.d";
  fails(read_job_files(job_files, ::geteuid()), "read the job files of '" + job_files);
  disk = {};
  CHECK(state->read_jobs()->jobs.size() == 1);
  CHECK(state->trash()->empty());
  CHECK(read_job_files(job_files, ::geteuid())->files.empty());
  CHECK_FALSE(fs::exists(folder / "jobs/.new-half"));
}
