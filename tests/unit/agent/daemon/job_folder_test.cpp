#include "agent/daemon/job_folder.hpp"

#include "agent/daemon/folder_tree.hpp"
#include "agent/daemon/job_files.hpp"
#include "agent/daemon/process_identity.hpp"
#include "agent/daemon/state_mark.hpp"
#include "agent/daemon/user_file.hpp"
#include "agent/small_file.hpp"
#include "common/fnv.hpp"
#include "common/host_name.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
namespace fs = std::filesystem;

namespace {

StoredJob sample_record(const std::string& id) {
  StoredJob job;
  job.id = id;
  job.uid = ::geteuid();
  job.gid = ::getegid();
  job.submission.edit().words = {"true"};
  job.submission.edit().working_directory = "/";
  return job;
}

void write(const fs::path& path, const std::string& text) { std::ofstream{path} << text; }

UniqueFd open_folder(const fs::path& path) {
  return UniqueFd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
}

// With mounts of its own, on a thread that ends with them; not where it may not.
void run_with_own_mounts(const std::function<void()>& work) {
  bool has_run = false;
  std::thread{[&] {
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    const UniqueFd here{static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how))};
    if (!here || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return;
    has_run = true;
    work();
  }}.join();
  if (!has_run) WARN("needs root, mounts and openat2: skipped");
}

bool mount_over(const fs::path& folder) {
  return ::mount("none", folder.c_str(), "tmpfs", 0, "mode=0777") == 0;
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  ::stat(path.c_str(), &info);
  return info.st_mode & 07777U;
}

}  // namespace

TEST_CASE("a job is found again as it was recorded last", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto path = (folder / "state").string();
  {
    auto state = StateFolder::open(path);
    REQUIRE(state.has_value());
    auto job = sample_record("a-000000");
    REQUIRE(state->make_job(job, nullptr).has_value());
    job.life.phase = Phase::running;
    REQUIRE(state->write_record(job.id, encode_job(job)).has_value());
    CHECK(mode_of(path + "/jobs") == 0711);
    CHECK(mode_of(path + "/jobs/a-000000") == 0711);
    CHECK(mode_of(path + "/jobs/a-000000/user") == 0700);
    CHECK(mode_of(path + "/jobs/a-000000/job.json") == 0600);
  }
  auto state = StateFolder::open(path);
  const auto contents = state->read_jobs().value();
  REQUIRE(contents.jobs.size() == 1);
  CHECK(contents.jobs[0].life.phase == Phase::running);
  REQUIRE(state->drop_job("a-000000").has_value());
  CHECK(state->read_jobs()->jobs.empty());
  const auto trash = state->trash().value();
  REQUIRE(trash.size() == 1);
  CHECK(trash[0].uid == ::geteuid());
  CHECK(state->remove_trash(trash[0].name).has_value());
  CHECK(fs::is_empty(path + "/trash"));
}

TEST_CASE("root's daemon took the folder behind another user's link for its state", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto shared = folder / "shared";
  const auto target = folder / "target";
  const auto link = (shared / "agent").string();
  for (const auto& one : {shared, target}) fs::create_directory(one);
  fs::create_directory_symlink(target, link);
  if (::lchown(link.c_str(), 1001, 1001) != 0) {
    WARN("needs root: skipped");
    return;
  }
  REQUIRE(::chmod(shared.c_str(), S_ISVTX | 0777) == 0);
  for (const auto& path : {link, link + "/"}) {
    const auto state = StateFolder::open(path);
    REQUIRE(state.has_error());
    CHECK(state.error().what.find("is another user's link") != std::string::npos);
  }
  CHECK(fs::is_empty(target));
  REQUIRE(::lchown(link.c_str(), ::geteuid(), ::getegid()) == 0);
  CHECK(StateFolder::open(link).has_value());
}

TEST_CASE("an acc-agent whose state folder was /tmp closed /tmp to all other users", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto path = folder.path().string();
  const auto refusal = [&] {
    const auto state = StateFolder::open(path);
    return state.has_error() ? state.error().what : "";
  };
  write(folder / "thesis.txt", "of somebody");
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  CHECK(refusal() == "the state folder '" + path +
                         "' has other files in it, as 'thesis.txt', and no file 'lock', by which "
                         "an acc-agent knows its own: name an empty or a new folder with "
                         "--state-dir");
  CHECK(mode_of(path) == 0755);
  fs::remove(folder / "thesis.txt");
  REQUIRE(::chmod(path.c_str(), 01777) == 0);
  CHECK(refusal() == "the state folder '" + path +
                         "' is one that others may write to: name another with --state-dir, or "
                         "chmod go-w it");
  CHECK(mode_of(path) == 01777);
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  fs::create_directory(folder / "lost+found");  // of a new file system
  CHECK(refusal().empty());
  write(folder / "notes.txt", "of an administrator");
  CHECK(refusal().empty());
}

namespace {

/// The names below `folder` and the modes, as they are before and after a refusal.
std::vector<std::string> listing(const fs::path& folder) {
  std::vector<std::string> found{std::to_string(mode_of(folder))};
  for (const auto& entry : fs::recursive_directory_iterator{folder})
    found.push_back(entry.path().native() + " " + std::to_string(mode_of(entry.path())));
  std::ranges::sort(found);
  return found;
}

/// A job's folder as a version without the mark left it, with its lock.
void make_earlier_state(const fs::path& folder, const std::string& lock) {
  write(folder / "lock", lock);
  ::chmod((folder / "lock").c_str(), 0600);
  for (const auto& [name, mode] :
       {std::pair{"jobs", 0711}, {"jobs/a-000000", 0711}, {"trash", 0700}}) {
    fs::create_directory(folder / name);
    ::chmod((folder / name).c_str(), static_cast<mode_t>(mode));
  }
  write(folder / "jobs/a-000000/job.json", encode_job(sample_record("a-000000")));
  ::chmod((folder / "jobs/a-000000/job.json").c_str(), 0600);
}

}  // namespace

TEST_CASE(
    "an acc-agent took a project's folder with a 'jobs' or a 'lock' for its own, and removed files "
    "there",
    "[daemon]") {
  const acc::testing::TestFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  std::string why;
  SECTION("a folder 'jobs'") {
    fs::create_directories(folder / "jobs/.new-batch");
    fs::create_directories(folder / "trash/2025");
    write(folder / "jobs/.new-batch/run.sbatch", "draft");
    write(folder / "trash/2025/thesis.tex", "keep");
    write(folder / "check-data.py", "print(1)");
    why = "as 'check-data.py', and no file 'lock'";
  }
  SECTION("a link 'lock', as /var has it") {
    fs::create_directory_symlink("/run/lock", folder / "lock");
    fs::create_directory(folder / "lib");
    why = "as 'lib', and its 'lock' is none of an acc-agent";
  }
  SECTION("a lock of another program") {
    write(folder / "lock", "held by make\n");
    why = "its 'lock' is none of an acc-agent";
  }
  SECTION("a lock with a process id, as many programs write it") {
    make_earlier_state(folder.path(), "4711\n");
    SECTION("and another file") {
      write(folder / "check-data.py", "print(1)");
      why = "as 'check-data.py'";
    }
    SECTION("and a file among the jobs") {
      write(folder / "jobs/train.sbatch", "#SBATCH");
      why = "as 'jobs/train.sbatch'";
    }
    SECTION("and a folder among the jobs") {
      fs::create_directory(folder / "jobs/.new-batch");
      write(folder / "jobs/.new-batch/run.sbatch", "draft");
      why = "as 'jobs/.new-batch'";
    }
    SECTION("and a folder in the trash") {
      fs::create_directory(folder / "trash/2025");
      why = "as 'trash/2025'";
    }
    SECTION("which is another user's, too (a hard link)") {
      fs::create_hard_link(folder / "lock", folder.path().native() + ".link");
      why = "its 'lock' is none of an acc-agent";
    }
  }
  const auto before = listing(folder.path());
  const auto state = StateFolder::open(folder.path().string());
  std::error_code none;
  fs::remove(folder.path().native() + ".link", none);
  REQUIRE(state.has_error());
  CHECK(state.error().code == Errc::not_permitted);
  CHECK_THAT(state.error().what, Catch::Contains(why));
  CHECK_THAT(state.error().what, Catch::Contains("name an empty or a new folder with --state-dir"));
  CHECK(listing(folder.path()) == before);
}

TEST_CASE("a state folder of the version before the mark is taken over, and has it then",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto lock = GENERATE(as<std::string>{}, "", "4711\n", "acc-agent st");
  make_earlier_state(folder.path(), lock);
  for (const auto* name : {"events", "drained", "token.key", "check-abc123.yaml"})
    write(folder / name, "1");
  fs::create_directories(folder / "jobs/.new-abc123/user");
  fs::create_directories(folder / "trash/b-000000.abc123/user");
  for (int i = 0; i < 2; ++i) {  // the second one knows it by its mark
    auto state = StateFolder::open(folder.path().string());
    REQUIRE(state.has_value());
    CHECK(state->read_jobs()->jobs.size() == 1);
    CHECK_FALSE(fs::exists(folder / "check-abc123.yaml"));
    CHECK_FALSE(fs::exists(folder / "jobs/.new-abc123"));
    write(folder / "notes.txt", "of an administrator");
    write(folder / "check-list.txt", "of an administrator");
    CHECK(state->read_jobs()->jobs.size() == 1);
    CHECK(fs::exists(folder / "check-list.txt"));
  }
  std::string mark;
  std::string holder;
  std::ifstream file{folder / "lock"};
  std::getline(file, mark);
  std::getline(file, holder);
  CHECK(mark == "acc-agent state folder");
  CHECK(holder == std::to_string(::getpid()) + " " + host_name());
  CHECK(holder_in(mark + "\n" + holder + "\n").pid == std::to_string(::getpid()));
  CHECK(holder_in(mark + "\n" + holder + "\n").host == host_name());
  CHECK(holder_in("315\n").host.empty());  // of an older daemon
}

TEST_CASE("a user's daemon was refused its folder, as acc-launch had noted something there",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  for (const auto* name : {"hang", "launches"}) fs::create_directory(folder / name);
  write(folder / "hang/default.times", "20 900\n");
  write(folder / "launches/a1.json", "{}");
  const auto opens = [&] { return StateFolder::open(folder.path().string()).has_value(); };
  SECTION("a first start") {
    SECTION("after a launch") {}
    SECTION("after a launch with --hang_timeout auto") { fs::remove_all(folder / "launches"); }
    SECTION("on a disk of its own") { fs::create_directory(folder / "lost+found"); }
    CHECK(opens());
  }
  SECTION("of the version before the mark") {
    make_earlier_state(folder.path(), "4711\n");
    CHECK(opens());
  }
  SECTION("not beside another program's files") {
    write(folder / "thesis.txt", "keep");
    CHECK_FALSE(opens());
  }
  SECTION("not for a file of that name") {
    fs::remove_all(folder / "hang");
    write(folder / "hang", "keep");
    CHECK_FALSE(opens());
  }
  SECTION("not for another user's") {
    if (::chown((folder / "launches").c_str(), 1001, 1001) != 0) return;  // needs root
    CHECK_FALSE(opens());
  }
}

TEST_CASE("an acc-agent called its state folder another program's where its lock wasn't readable",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto path = folder.path().string();
  const auto refusal = [&] {
    const auto state = StateFolder::open(path);
    REQUIRE(state.has_error());
    return state.error();
  };
  make_earlier_state(folder.path(), "4711\n");
  SECTION("no descriptor was free") {
    const UniqueFd state = open_folder(folder.path());
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{1, before.rlim_max};
    // One is free for the names, which are read first, as 0 is closed.
    const UniqueFd input{::fcntl(0, F_DUPFD_CLOEXEC, 10)};
    ::close(0);
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto lock = lock_state_folder(state.get(), path);
    ::setrlimit(RLIMIT_NOFILE, &before);
    ::dup2(input.get(), 0);
    REQUIRE(lock.has_error());
    CHECK(lock.error().errnum == EMFILE);
  }
  SECTION("its disk is read-only") {
    run_with_own_mounts([&] {
      if (::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
          ::mount("none", path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0)
        return;
      const auto why = refusal();
      CHECK(why.errnum == EROFS);
      CHECK_THAT(why.what, Catch::StartsWith("open '" + path + "/lock': "));
    });
  }
}

TEST_CASE("a job whose record a loss of power took kept the daemon from its folder", "[daemon]") {
  const acc::testing::TestFolder folder;
  make_earlier_state(folder.path(), "4711\n");
  const auto make = [&](const std::string& name) {
    fs::create_directories(folder / name);
    ::chmod((folder / name).c_str(), 0711);
  };
  const auto read = [&] {
    auto state = StateFolder::open(folder.path().string());
    if (state.has_error()) return std::size_t{0};
    const auto contents = state->read_jobs().value();
    CHECK(contents.jobs.size() == 1);
    return contents.damaged.size();
  };
  make("jobs/b-000000");
  SECTION("with nothing in it") { CHECK(read() == 1); }
  SECTION("with its user's part") {
    make("jobs/b-000000/user");
    write(folder / "jobs/b-000000/config.yaml", "");
    write(folder / "jobs/b-000000/job.json.new", "");
    CHECK(read() == 1);
  }
  SECTION("but not another program's") {
    write(folder / "jobs/b-000000/config.yaml", "of a project");
    CHECK(read() == 0);
  }
}

TEST_CASE("a daemon gave up where its predecessor still removed a job", "[daemon]") {
  const acc::testing::TestFolder folder;
  make_earlier_state(folder.path(), "4711\n");
  fs::create_directory(folder / "jobs/b-000000.gone");
  write(folder / "jobs/b-000000.gone/out", "");
  const UniqueFd predecessor{::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC)};
  REQUIRE(::flock(predecessor.get(), LOCK_EX) == 0);
  const auto state = StateFolder::open(folder.path().string());
  REQUIRE(state.has_error());
  CHECK(state.error().code == Errc::unavailable);  // which it tries again
}

TEST_CASE(
    "the daemon was refused /var/lib/acc, as a job of acc-launch@.service had its folder there",
    "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto path = folder.path().string();
  fs::create_directory(folder / "training");
  write(folder / "training/model.bin", "of a job");
  SECTION("a new one") {}
  SECTION("of the version before the mark") { make_earlier_state(folder.path(), "4711\n"); }
  CHECK(StateFolder::open(path).has_error());
  ::setenv("STATE_DIRECTORY", ("/var/lib/other:" + path).c_str(), 1);
  const auto state = StateFolder::open(path);
  ::unsetenv("STATE_DIRECTORY");
  CHECK(state.has_value());
  CHECK(fs::exists(folder / "training/model.bin"));
}

TEST_CASE("a state folder was not judged by what stood above it once it was made", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto above = (folder / "above").string();
  fs::create_directory(above);
  REQUIRE(::chmod(above.c_str(), 0777) == 0);
  // Nothing can be seen through "missing" until it has been made: as where another user makes a
  // folder between the two.
  const auto state = StateFolder::open((folder / "missing/../above/state").string());
  REQUIRE(state.has_error());
  CHECK_THAT(state.error().what,
             Catch::Contains("'" + above + "', above it, can be written by other users"));
}

TEST_CASE("root's daemon kept its state below another user's folder", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto above = (folder / "above").string();
  const auto path = above + "/deep/state";
  fs::create_directory(above);
  REQUIRE(::chmod(above.c_str(), 0755) == 0);
  REQUIRE(StateFolder::open(path).has_value());
  const auto refusal = [&](const std::string& named) {
    const auto state = StateFolder::open(named);
    return state.has_error() ? state.error().what : "";
  };
  SECTION("all may write to a folder on the way") {
    REQUIRE(::chmod(above.c_str(), 0777) == 0);
    CHECK(refusal(path) ==
          "the state folder '" + path + "' could be replaced by another user's: '" + above +
              "', above it, can be written by other users and isn't sticky "
              "(chmod +t it): name one below /var/lib or your home with --state-dir");
    fs::create_directory_symlink(above + "/deep", folder / "link");
    CHECK_THAT(refusal((folder / "link/state").string()), Catch::Contains("'" + above + "'"));
    CHECK_THAT(refusal(above + "/new"), Catch::Contains(above));
    CHECK_FALSE(fs::exists(above + "/new"));
    REQUIRE(::chmod(above.c_str(), S_ISVTX | 0777) == 0);
    CHECK(refusal(path).empty());
  }
  SECTION("another user's") {
    if (::chown(above.c_str(), 1001, 1001) != 0) {
      WARN("needs root: skipped");
      return;
    }
    CHECK_THAT(refusal(path + "/"),
               Catch::Contains("'" + above + "', above it, belongs to uid 1001"));
  }
  SECTION("another group may write to it") {
    if (::chown(above.c_str(), 0, 1001) != 0) {
      WARN("needs root: skipped");
      return;
    }
    REQUIRE(::chmod(above.c_str(), 0775) == 0);
    CHECK_THAT(refusal(path), Catch::Contains("can be written by other users"));
  }
}

TEST_CASE("two daemons don't share a state folder", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto first = StateFolder::open(folder.path().string());
  REQUIRE(first.has_value());
  const auto second = StateFolder::open(folder.path().string());
  REQUIRE(second.has_error());
  CHECK(second.error().what.find("another acc-agent uses the state folder") == 0);
}

TEST_CASE("a damaged record is set aside, and the other jobs are read", "[daemon]") {
  const acc::testing::TestFolder folder;
  auto state = StateFolder::open(folder.path().string());
  REQUIRE(state->make_job(sample_record("good-000000"), nullptr).has_value());
  const auto jobs = folder / "jobs";
  for (const auto* name : {"empty-000000", "none-000000", "other-000000", "link-000000"})
    fs::create_directory(jobs / name);
  write(jobs / "empty-000000/job.json", "");
  write(jobs / "other-000000/job.json", encode_job(sample_record("good-000000")));
  fs::create_symlink(jobs / "good-000000/job.json", jobs / "link-000000/job.json");
  write(jobs / "file", "x");
  fs::create_directories(jobs / ".new-abc/user");
  const auto contents = state->read_jobs().value();
  CHECK(contents.jobs.size() == 1);
  REQUIRE(contents.damaged.size() == 5);
  CHECK(contents.damaged[0].why == "job.json: empty");
  for (const auto& one : contents.damaged) CHECK(fs::exists(one.moved_to));
  CHECK_FALSE(fs::exists(jobs / ".new-abc"));  // half made by a daemon that died
  CHECK(state->read_jobs()->damaged.empty());
}

TEST_CASE("a note that isn't the daemon's own counted as none", "[daemon]") {
  const acc::testing::TestFolder folder;
  auto state = StateFolder::open(folder.path().string());
  REQUIRE(state.has_value());
  CHECK(state->read_note("drained") == Result<std::string>{""});
  REQUIRE(state->write_note("drained", "disk").has_value());
  CHECK(state->read_note("drained") == Result<std::string>{"disk"});
  SECTION("a link") {
    fs::rename(folder / "drained", folder / "elsewhere");
    fs::create_symlink("elsewhere", folder / "drained");
  }
  SECTION("one that is too long") { write(folder / "drained", std::string(5000, 'x')); }
  const auto note = state->read_note("drained");
  REQUIRE(note.has_error());
  CHECK_THAT(note.error().what,
             Catch::StartsWith("'" + (folder / "drained").string() + "' isn't as"));
}

TEST_CASE("nothing is read through a link, a pipe or from another user's file", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto fd = open_folder(folder.path());
  const uid_t own = ::geteuid();
  write(folder / "plain", "text");
  fs::create_symlink("plain", folder / "link");
  fs::create_directory(folder / "sub");
  write(folder / "sub/deep", "deep");
  fs::create_directory_symlink("sub", folder / "sublink");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(*read_user_file(fd.get(), "plain", own, 100) == "text");
  CHECK(*read_user_file(fd.get(), "sub/deep", own, 100) == "deep");
  CHECK(read_user_file(fd.get(), "plain", own, 3).has_error());
  CHECK(read_user_file(fd.get(), "plain", own + 1, 100).error().code == Errc::not_permitted);
  for (const auto* bad : {"link", "sublink/deep", "pipe", "sub", "sub/../plain", "..", ""})
    CHECK(read_user_file(fd.get(), bad, own, 100).has_error());
  CHECK(read_user_file(fd.get(), "none", own, 100).error().code == Errc::not_found);
}

TEST_CASE("the newest log of a rank is found, and through no link but `latest`", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto fd = open_folder(folder.path());
  const uid_t own = ::geteuid();
  NewestAttempts attempts;
  const auto read = [&](std::uint32_t rank) -> std::string {
    const auto log = open_rank_log(fd.get(), attempts, rank, false, own);
    if (log.has_error()) return "error: " + log.error().what;
    char text[64];
    const auto n = ::read(log->get(), text, sizeof text);
    return {text, static_cast<std::size_t>(n)};
  };
  CHECK(open_rank_log(fd.get(), attempts, 0, false, own).error().code == Errc::not_found);
  for (const auto* run : {"logs/run_a", "logs/run_b"})
    for (const auto* attempt : {"attempt_2", "attempt_10"})
      fs::create_directories(folder / run / attempt / "0");
  write(folder / "logs/run_a/attempt_10/0/stdout.log", "a10");
  write(folder / "logs/run_a/attempt_2/0/stdout.log", "a2");
  write(folder / "logs/run_b/attempt_10/0/stdout.log", "b10");
  fs::create_symlink("run_a", folder / "logs/latest");
  CHECK(read(0) == "a10");
  CHECK(open_rank_log(fd.get(), attempts, 1, false, own).error().code == Errc::not_found);
  SECTION("a link that leads out is not followed") {
    fs::remove(folder / "logs/latest");
    fs::create_directories(folder / "secret/attempt_0/0");
    write(folder / "secret/attempt_0/0/stdout.log", "secret");
    fs::create_symlink("../secret", folder / "logs/latest");
    CHECK(read(0).find("secret") == std::string::npos);
    fs::remove(folder / "logs/latest");
    fs::create_symlink(folder / "secret", folder / "logs/latest");
    CHECK(read(0).find("secret") == std::string::npos);
  }
  SECTION("nor is a rank's folder that is one") {
    fs::remove_all(folder / "logs/run_a/attempt_10/0");
    fs::create_directory_symlink("/etc", folder / "logs/run_a/attempt_10/0");
    CHECK(read(0).starts_with("error: "));
  }
}

TEST_CASE("the logs of a rank are found one after the other, and through no link", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto fd = open_folder(folder.path());
  NewestAttempts attempts;
  fs::create_directories(folder / "secret/0");
  write(folder / "secret/0/stdout.log", "secret");
  auto time = fs::file_time_type::clock::now() - std::chrono::hours{1};
  for (const std::string run : {"run_a", "run_b", "run_c"}) {
    for (const std::string attempt : {"0", "2", "10"}) {
      const auto rank = folder / "logs" / run / ("attempt_" + attempt) / "0";
      fs::create_directories(rank);
      write(rank / "stdout.log", run + ' ' + attempt);
      fs::last_write_time(rank.parent_path(), time);
    }
    fs::create_directory_symlink("../../secret", folder / "logs" / run / "attempt_1");
    time += std::chrono::seconds{1};
  }
  fs::create_directory_symlink("../secret", folder / "logs/run_x");
  fs::create_directory_symlink("run_c", folder / "logs/latest");
  const auto read_from = [&](std::optional<LogPlace> from) {
    std::string text;
    RankLogChoice choice{0, false, from};
    for (;;) {
      const auto found = find_rank_log(fd.get(), attempts, choice, ::geteuid());
      struct stat info {};
      if (!found || ::fstat(found->fd.get(), &info) != 0 || info.st_ino == choice.read) return text;
      char piece[64];
      const auto n = ::read(found->fd.get(), piece, sizeof piece);
      text += std::string{piece, static_cast<std::size_t>(n)} + "; ";
      choice.from = found->place;
      choice.read = info.st_ino;
    }
  };
  const std::string all_of_c = "run_c 0; run_c 2; run_c 10; ";
  CHECK(read_from(std::nullopt) == "run_c 10; ");
  CHECK(read_from(LogPlace{}) ==
        "run_a 0; run_a 2; run_a 10; run_b 0; run_b 2; run_b 10; " + all_of_c);
  const auto time_ms =
      std::chrono::duration_cast<Millis>(
          fs::file_time_type::clock::to_sys(time).time_since_epoch() - std::chrono::seconds{1})
          .count();
  CHECK(read_from(LogPlace{time_ms - 1'000, fnv1a("run_b"), 3}) == "run_b 10; " + all_of_c);
  CHECK(read_from(LogPlace{time_ms - 2'000, fnv1a("run_gone"), 3}) ==
        "run_b 0; run_b 2; run_b 10; " + all_of_c);
  CHECK(read_from(LogPlace{time_ms, fnv1a("run_c"), 10}) == "run_c 10; ");
  CHECK(read_from(LogPlace{time_ms, fnv1a("run_c"), 4'294'967'295}).empty());
  CHECK(read_from(LogPlace{time_ms - 1'000, fnv1a("run_x"), 0}) == all_of_c);
  CHECK(read_from(LogPlace{time_ms, fnv1a("latest"), 0}) == all_of_c);
}

TEST_CASE("readers of a job with thousands of attempts don't each read through all of them",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto make = [&](int attempt) {
    fs::create_directory(folder / ("attempt_" + std::to_string(attempt)));
  };
  for (int i = 0; i < 4'000; ++i) make(i);
  fs::last_write_time(folder.path(), fs::file_time_type::clock::now() - std::chrono::hours{1});
  const auto fd = open_folder(folder.path());
  NewestAttempts attempts;
  for (int i = 0; i < 250; ++i) REQUIRE(attempts.in(fd.get()) == 3999U);
  CHECK(attempts.reads() == 1);
  make(4'000);
  CHECK(attempts.in(fd.get()) == 4000U);
  make(4'001);
  CHECK(attempts.in(fd.get()) == 4001U);
  make(4'050);  // this node had no part in those between
  const auto deadline = clock_now() + Millis{10'000};
  while (attempts.in(fd.get()) != 4050U && clock_now() < deadline)
    std::this_thread::sleep_for(Millis{5});
  CHECK(attempts.in(fd.get()) == 4050U);
  fs::remove(folder / "attempt_4050");
  while (attempts.in(fd.get()) != 4001U && clock_now() < deadline)
    std::this_thread::sleep_for(Millis{5});
  CHECK(attempts.in(fd.get()) == 4001U);
}

TEST_CASE("a socket that is a link, or of another user, is not connected to", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto fd = open_folder(folder.path());
  const UniqueFd listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (folder / "real").c_str());
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(connect_user_socket(fd.get(), "real", ::geteuid()).error().code == Errc::unavailable);
  REQUIRE(::listen(listener.get(), 4) == 0);
  fs::create_symlink("real", folder / "control.sock");
  CHECK(connect_user_socket(fd.get(), "real", ::geteuid()).has_value());
  CHECK(connect_user_socket(fd.get(), "real", ::geteuid() + 1).has_error());
  CHECK(connect_user_socket(fd.get(), "control.sock", ::geteuid()).error().code ==
        Errc::not_permitted);
  CHECK(connect_user_socket(fd.get(), "none", ::geteuid()).error().code == Errc::not_found);
}

TEST_CASE("a tree is removed whole, however deep, and nothing that its links name", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto fd = open_folder(folder.path());
  fs::create_directory(folder / "kept");
  write(folder / "kept/file", "x");
  fs::create_directory(folder / "tree");
  fs::create_directory_symlink("../kept", folder / "tree/link");
  UniqueFd at = open_folder(folder / "tree");
  for (int i = 0; i < 300; ++i) {
    REQUIRE(::mkdirat(at.get(), "d", 0700) == 0);
    REQUIRE(::symlinkat("/etc", at.get(), "l") == 0);
    at.reset(::openat(at.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  at.reset();
  CHECK(bytes_of_tree(fd.get(), "tree") > 0);
  CHECK(remove_tree(fd.get(), "tree").has_value());
  CHECK_FALSE(fs::exists(folder / "tree"));
  CHECK(fs::exists(folder / "kept/file"));
  CHECK(remove_tree(fd.get(), "tree").has_value());  // it is gone already
}

TEST_CASE("root doesn't empty another user's folder that a job's user moved there", "[daemon]") {
  if (::geteuid() != 0) return;
  constexpr uid_t kUser = 64'100, kOther = 64'101;
  const acc::testing::TestFolder folder;
  const auto fd = open_folder(folder.path());
  const auto give = [&](const std::string& name, uid_t uid) {
    fs::create_directories(folder / name);
    REQUIRE(::chown((folder / name).c_str(), uid, uid) == 0);
  };
  std::string deep = "tree/user/deep";
  for (int i = 0; i < 40; ++i) deep += "/d";
  for (const auto& place : {std::string{"tree/user"}, deep}) {
    fs::create_directories(folder / place);
    give(place + "/project", kOther);
    give(place + "/project/results", kOther);
    write(folder / (place + "/project/results/model"), "x");
    give(place + "/own/inner", kUser);
  }
  for (auto at = deep; at != "tree"; at = at.substr(0, at.rfind('/'))) give(at, kUser);
  give("tree/user/own", kUser);
  give("tree/user/empty", kOther);
  const auto removed = remove_tree(fd.get(), "tree");
  REQUIRE(removed.has_error());
  CHECK(removed.error().what.find("project") != std::string::npos);
  CHECK(removed.error().what.find("Operation not permitted") != std::string::npos);
  CHECK(fs::exists(folder / "tree/user/project/results/model"));
  CHECK_FALSE(fs::exists(folder / "tree/user/own"));
  CHECK_FALSE(fs::exists(folder / "tree/user/empty"));
  (void)remove_tree(fd.get(), "tree");  // it is tried again
  std::size_t models = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "tree"))
    models += entry.path().filename() == "model";
  CHECK(models == 2);
}

TEST_CASE("a file system over a job's folder froze the daemon", "[daemon]") {
  const acc::testing::TestFolder folder;
  const uid_t own = ::geteuid();
  run_with_own_mounts([&] {
    auto state = StateFolder::open(folder.path().string());
    CHECK(state->make_job(sample_record("a-000000"), nullptr).has_value());
    const fs::path user{state->user_path("a-000000")};
    fs::create_directories(user / "logs/run/attempt_0/0");
    fs::create_directory(user / "control.sock");
    write(user / "report.json", "{}");
    write(user / "started", "");
    SECTION("over all of it") {
      CHECK(mount_over(user));
      const auto opened = state->open_user_folder("a-000000");
      CHECK(opened.error().code == Errc::not_permitted);
      CHECK(opened.error().what == "a file system is mounted over the folder '" + user.string() +
                                       "' of job a-000000: unmount it");
      const auto mounted = open_folder(user);
      write(user / "of-the-mount", std::string(1'000'000, 'x'));
      CHECK(state->bytes_of("a-000000") < 500'000);
      CHECK(state->drop_job("a-000000").has_value());
      const auto trash = state->trash().value();
      CHECK(trash.size() == 1);
      CHECK(trash.at(0).uid == own);
      CHECK(state->remove_trash(trash.at(0).name).has_value());
      CHECK(fs::is_empty(folder / "trash"));
      CHECK(::faccessat(mounted.get(), "of-the-mount", F_OK, 0) == 0);
    }
    SECTION("over a part of it") {
      NewestAttempts attempts;
      const auto fd = state->open_user_folder("a-000000");
      CHECK(mount_over(user / "control.sock"));
      CHECK(connect_user_socket(fd->get(), "control.sock", own).error().what ==
            "open 'control.sock' in the job's folder: a file system is mounted over it: unmount "
            "it");
      for (int i = 0; i < 3; ++i) CHECK(mount_over(user / "logs/run"));
      fs::create_directories(user / "logs/run/attempt_0/0");
      write(user / "logs/run/attempt_0/0/stdout.log", "x");
      CHECK(open_rank_log(fd->get(), attempts, 0, false, own).error().code == Errc::not_found);
      CHECK(open_log_folders(fd->get()).size() == 1);
      const auto file = (user / "report.json").string();
      CHECK(::mount((user / "started").c_str(), file.c_str(), nullptr, MS_BIND, nullptr) == 0);
      CHECK(read_user_file(fd->get(), "report.json", own, 100).error().code == Errc::not_permitted);
      CHECK(has_user_file(fd->get(), "report.json") == Result<bool>{true});
      CHECK(state->drop_job("a-000000").has_value());
      CHECK(state->remove_trash(state->trash().value().at(0).name).has_value());
    }
  });
}

TEST_CASE("job files that others may write, links and bad names are refused by name", "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto add = [&](const std::string& name, mode_t mode) {
    write(folder / name, "script: x\n");
    ::chmod((folder / name).c_str(), mode);
  };
  add("good.yaml", 0644);
  add("group.yaml", 0664);
  add("all.yaml", 0646);
  add("Bad Name.yaml", 0644);
  add("good.yml", 0644);
  add("README", 0666);
  add(".hidden.yaml", 0644);
  fs::create_symlink("good.yaml", folder / "link.yaml");
  fs::create_directory(folder / "dir.yaml");
  const auto found = read_job_files(folder.path().string(), ::geteuid());
  REQUIRE(found.has_value());
  REQUIRE(found->files.size() == 1);
  CHECK(found->files[0].name == "good");
  CHECK(found->files[0].text == "script: x\n");
  std::map<std::string, std::string> why;
  for (const auto& one : found->refused) why[one.name] = one.why;
  CHECK(why.size() == 6);
  CHECK(why["link.yaml"] == "it is a link");
  CHECK(why["group.yaml"] == "others than its owner may write it: chmod go-w");
  CHECK(why["all.yaml"] == why["group.yaml"]);
  CHECK(why["dir.yaml"] == "it is no regular file");
  CHECK(why["good.yml"] == "another file has the same name but for its ending");
  CHECK(read_job_files("/no/such/folder", 0)->files.empty());
  CHECK_FALSE(read_job_files("/no/such/folder", 0)->has_folder);
  CHECK(found->has_folder);
}

TEST_CASE("a JSON file in jobs.d, ignored until then, took the place of the job in YAML beside it",
          "[daemon]") {
  const acc::testing::TestFolder folder;
  const auto add = [&](const std::string& name) {
    write(folder / name, name);
    ::chmod((folder / name).c_str(), 0644);
  };
  add("embed.json");
  add("serve.json");
  std::string taken;
  SECTION("NAME.yaml") { taken = "embed.yaml"; }
  SECTION("NAME.yml") { taken = "embed.yml"; }
  SECTION("one that is refused itself") { fs::create_symlink("serve.json", folder / "embed.yaml"); }
  if (!taken.empty()) add(taken);
  const auto found = read_job_files(folder.path().string(), ::geteuid());
  REQUIRE(found.has_value());
  REQUIRE(found->files.size() == (taken.empty() ? 1 : 2));
  CHECK(found->files.front().text == (taken.empty() ? "serve.json" : taken));
  CHECK(found->files.front().is_json == taken.empty());
  CHECK(found->files.back().name == "serve");
  REQUIRE_FALSE(found->refused.empty());
  CHECK(found->refused.back().name == "embed.json");
  CHECK(found->refused.back().why == "another file has the same name but for its ending");
}

TEST_CASE("an ended job whose folder had been removed by hand could not be removed", "[daemon]") {
  const acc::testing::TestFolder folder;
  auto state = StateFolder::open(folder.path().string());
  REQUIRE(state.has_value());
  CHECK(state->drop_job("a-000000").has_value());
  fs::remove_all(folder / "trash");
  CHECK(state->drop_job("a-000000").has_value());
}

TEST_CASE("a process is known by its start and its boot, not by its pid alone", "[daemon]") {
  const auto own = identity_of(::getpid()).value();
  CHECK(own.boot_id == boot_id());
  CHECK(open_process(own).value());
  CHECK(open_process_of(::getuid(), own).value());
  CHECK_FALSE(open_process_of(::getuid() + 1, own).value());
  auto other = own;
  ++other.start_time;
  CHECK_FALSE(open_process(other).value());
  other = own;
  other.boot_id = "another";
  CHECK_FALSE(open_process(other).value());
  CHECK_FALSE(open_process({}).value());
  CHECK(identity_of(0x3fffffff).error().errnum == ENOENT);
}

TEST_CASE(
    "a process counted as ended as its thread's number, its end or its boot wasn't understood",
    "[daemon]") {
  auto own = identity_of(::getpid()).value();
  own.boot_id.clear();  // of a daemon that couldn't read it
  CHECK(open_process(own).value());
  ++own.start_time;
  CHECK_FALSE(open_process(own).value());
  pid_t thread = 0;
  std::thread{[&] {
    thread = ::gettid();
    auto other = own;
    other.pid = thread;
    CHECK_FALSE(open_process(other).value());  // which has no pidfd
  }}.join();
  CHECK(thread != ::getpid());
}

TEST_CASE("a living process counted as ended as no descriptor was left to watch it", "[daemon]") {
  const auto own = identity_of(::getpid()).value();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto by_start = open_process(own);
  const auto by_user = open_process_of(::getuid(), own);
  const auto identity = identity_of(::getpid());
  ::setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(by_start.has_error());
  CHECK(by_start.error().errnum == EMFILE);
  REQUIRE(by_user.has_error());
  CHECK(by_user.error().errnum == EMFILE);
  REQUIRE(identity.has_error());
  CHECK(identity.error().errnum == EMFILE);
}

TEST_CASE("a file that couldn't be looked at counted as one that is missing", "[daemon]") {
  const acc::testing::TestFolder folder;
  write(folder / "started", "");
  const auto fd = open_folder(folder.path());
  CHECK(has_user_file(fd.get(), "started") == Result<bool>{true});
  CHECK(has_user_file(fd.get(), "exit.json") == Result<bool>{false});
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto started = has_user_file(fd.get(), "started");
  ::setrlimit(RLIMIT_NOFILE, &before);
  if (started == Result<bool>{true}) {
    WARN("needs openat2, which takes a descriptor: skipped");
    return;
  }
  REQUIRE(started.has_error());
  CHECK(started.error().errnum == EMFILE);
}
