#include "runtime/checkpoint/folder_lock.hpp"

#include "runtime/checkpoint/folder.hpp"
#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <system_error>
#include <vector>

using namespace acc::testing;
using namespace acc::runtime::checkpoint;
using acc::runtime::Error;

namespace {

/// As a holder in this process leaves the file until it removes it.
void leave_signature(const fs::path& folder) {
  std::string signature;
  {
    FolderLock lock;
    lock.take(folder);
    signature = contents_of(folder / ".lock");
  }
  put_contents(folder / ".lock", signature);
}

/// Another thread has the lock for a moment.
struct SlowRelease : FileOps {
  std::chrono::steady_clock::time_point end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds{300};
  int lock(int fd) override {
    return std::chrono::steady_clock::now() < end ? EWOULDBLOCK : FileOps::lock(fd);
  }
};

/// As a version of the runtime before this one holds a folder.
void lock_as_before(const fs::path& folder) {
  leave_signature(folder);
  const int fd = ::open((folder / ".lock").c_str(), O_RDWR | O_CLOEXEC);  // ends with the process
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) != 0) ::_exit(1);
}

enum class Way : std::uint8_t { plain, leaves_a_child, by_flock };

/// Another process that has the lock of a folder until it is told to end.
class Neighbour {
 public:
  Neighbour(const fs::path& folder, const char* job, const char* round, Way way = Way::plain) {
    const bool leaves_a_child = way == Way::leaves_a_child;
    REQUIRE(::pipe(ready_.data()) == 0);
    REQUIRE(::pipe(end_.data()) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) {
      ::close(ready_[1]);
      char one = 0;
      REQUIRE(::read(ready_[0], &one, 1) == 1);
      siginfo_t ended{};
      if (leaves_a_child)
        REQUIRE(::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) == 0);
      return;
    }
    ::close(end_[1]);
    ::setenv("ACC_JOB_ID", job, 1);
    ::setenv("ACC_ROUND", round, 1);
    char one = 0;
    try {
      FolderLock lock;
      if (way == Way::by_flock) lock_as_before(folder);
      if (way != Way::by_flock) lock.take(folder);
      if (leaves_a_child && ::fork() != 0) ::_exit(0);
      [[maybe_unused]] const auto said = ::write(ready_[1], "x", 1);
      [[maybe_unused]] const auto told = ::read(end_[0], &one, 1);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ~Neighbour() {
    ::close(end_[1]);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  std::array<int, 2> ready_{}, end_{};
  pid_t pid_ = -1;
};

std::string refusal(const fs::path& folder) {
  try {
    FolderLock lock;
    lock.take(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

constexpr int kNotAllowed = 77;

/// Runs as root in a pid namespace of its own, whose /proc shows users only their own processes.
/// @return of `work`; kNotAllowed: there can be no such namespace here
int with_hidden_processes(const std::function<int()>& work) {
  const auto code_of = [](pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  };
  const pid_t outer = ::fork();
  if (outer != 0) return code_of(outer);
  if (::unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) ::_exit(kNotAllowed);
  const pid_t inner = ::fork();
  if (inner != 0) ::_exit(code_of(inner));
  const bool is_made = ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("proc", "/proc", "proc", 0, "hidepid=2") == 0;
  ::_exit(is_made ? work() : kNotAllowed);
}

/// A process of another user, in which `work` gives the exit code.
pid_t as_user(uid_t user, const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::umask(0);
  if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) ::_exit(2);
  try {
    ::_exit(work());
  } catch (...) {
    ::_exit(1);
  }
}

}  // namespace

TEST_CASE("with hidepid=2 the lock of another user's living job was taken away",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const int code = with_hidden_processes([&] {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) return 3;
    const pid_t holder = as_user(1001, [&] {
      FolderLock lock;
      lock.take(folder.path());
      if (::write(ready[1], "x", 1) == 1) ::pause();
      return 0;
    });
    ::close(ready[1]);
    char one = 0;
    if (::read(ready[0], &one, 1) != 1) return 4;
    const auto is_refused = [&] {
      int status = 0;
      ::waitpid(as_user(1002, [&] { return refusal(folder.path()).empty() ? 0 : 1; }), &status, 0);
      return status != 0;
    };
    if (!is_refused()) return 5;
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    return is_refused() ? 6 : 0;  // a dead one's is no obstacle
  });
  if (code == kNotAllowed) {
    WARN("skipped: a /proc with hidepid=2 can't be mounted here");
    return;
  }
  CHECK(code == 0);
}

TEST_CASE("two jobs don't write checkpoints into one folder", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  {
    const Neighbour other{folder.path(), "nightly", "0"};
    CHECK_THAT(refusal(folder.path()),
               Catch::Contains("'nightly'") && Catch::Contains(std::to_string(other.pid())) &&
                   Catch::Contains(folder.path().native()) && Catch::Contains("remove"));
    // A whole save says the same, on all ranks, and leaves nothing.
    std::atomic<int> refused{0};
    on_ranks(2, [&](ProcessGroup& group) {
      Checkpointer checkpoints{group, quiet_options(folder.path())};
      SmallRun run{group.rank(), 2, 1};
      try {
        checkpoints.save(1, run.state());
      } catch (const Error& error) {
        refused += error.code() == ErrorCode::invalid_argument ? 1 : 0;
      }
      checkpoints.save_as(folder / "best", run.state());  // which stands by itself
    });
    CHECK(refused == 2);
    CHECK(list_checkpoints(folder.path()).empty());
  }
  CHECK(refusal(folder.path()).empty());  // it is gone
}

TEST_CASE("a second group of one job was told of another job", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const Neighbour other{folder.path(), "nightly", "0"};
  ::setenv("ACC_JOB_ID", "nightly", 1);
  ::setenv("ACC_ROUND", "0", 1);
  const auto said = refusal(folder.path());
  ::unsetenv("ACC_JOB_ID");
  ::unsetenv("ACC_ROUND");
  CHECK_THAT(said,
             Catch::Contains("another group of this job, process " + std::to_string(other.pid())));
}

TEST_CASE("of the C library beside the C++ one, in one process, another job was told",
          "[runtime][checkpoint]") {
  // Each of them has a list of its own of what it has locked, as two processes would.
  const TemporaryFolder folder;
  leave_signature(folder.path());
  const acc::UniqueFd other{::open((folder / ".lock").c_str(), O_RDWR | O_CLOEXEC)};
  struct flock whole {};
  whole.l_type = F_WRLCK;
  REQUIRE(::fcntl(other.get(), F_OFD_SETLK, &whole) == 0);
  const auto said = refusal(folder.path());
  CHECK_THAT(said, Catch::Contains("another copy of the runtime in this process") &&
                       Catch::Contains("libacc.so") &&
                       Catch::Contains(std::to_string(::getpid())) &&
                       Catch::Contains(folder.path().native()));
  CHECK(said.find("another job") == std::string::npos);
  CHECK(said.find("remove") == std::string::npos);  // that file is no left-over
}

TEST_CASE("a lock that another thread released slowly was another copy of the runtime's",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  leave_signature(folder.path());
  SlowRelease files;
  FolderLock lock;
  CHECK_NOTHROW(lock.take(
      folder.path(), [](const std::string&) {}, files));
}

TEST_CASE("a job of an older version and one of this wrote to one folder",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  {
    const Neighbour old{folder.path(), "nightly", "0", Way::by_flock};
    for (int i = 0; i < 2; ++i)  // the refused one leaves the other's file
      CHECK_THAT(refusal(folder.path()),
                 Catch::Contains("'nightly'") && Catch::Contains(std::to_string(old.pid())));
  }
  CHECK(refusal(folder.path()).empty());
}

TEST_CASE("a lock file that can't be removed isn't left with the name of a process that goes on",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto path = folder / ".lock";
  put_contents(path, "");
  const bool is_root = ::geteuid() == 0;  // who may remove anything
  constexpr uid_t kNobody = 65534;
  if (is_root) REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0);
  REQUIRE(::chmod(folder.path().c_str(), is_root ? 0755 : 0555) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (is_root && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(1);
    try {
      FolderLock lock;
      lock.take(folder.path());
      if (contents_of(path).empty()) ::_exit(2);
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::chmod(folder.path().c_str(), 0755);
  CHECK(status == 0);
  REQUIRE(fs::exists(path));
  CHECK(contents_of(path).empty());
}

TEST_CASE("a forked child that ended as programs do removed the lock of its parent",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  auto lock = std::make_unique<FolderLock>();
  lock->take(folder.path());
  const pid_t child = ::fork();
  if (child == 0) {
    lock.reset();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(fs::exists(folder / ".lock"));
  lock.reset();
  CHECK_FALSE(fs::exists(folder / ".lock"));
}

TEST_CASE("the lock of a process that was killed, or of an earlier round, is no obstacle",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  {
    const Neighbour dead{folder.path(), "nightly", "0"};
    ::kill(dead.pid(), SIGKILL);
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(dead.pid()), &info, WEXITED) == 0);
    CHECK(fs::exists(folder / ".lock"));
    CHECK(refusal(folder.path()).empty());
  }
  {
    const Neighbour left{folder.path(), "nightly", "0",
                         Way::leaves_a_child};  // a child of it has the file open
    CHECK(refusal(folder.path()).empty());
  }
  const Neighbour earlier{folder.path(), "nightly", "1"};
  ::setenv("ACC_JOB_ID", "nightly", 1);
  ::setenv("ACC_ROUND", "2", 1);
  CHECK(refusal(folder.path()).empty());
  ::setenv("ACC_ROUND", "1", 1);
  CHECK(refusal(folder.path()).empty());  // that lock was taken over
  ::unsetenv("ACC_JOB_ID");
  ::unsetenv("ACC_ROUND");
}

TEST_CASE("a user who could only read the folder stopped its checkpoints",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto path = folder / ".lock";
  // As an older version left it: all could read it, and lock what they could read.
  { const acc::UniqueFd made{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)}; }
  ::chmod(path.c_str(), 0644);
  // An open file of its own, as that of another process: its locks conflict with ours.
  const acc::UniqueFd reader{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  SECTION("flock") { REQUIRE(::flock(reader.get(), LOCK_EX | LOCK_NB) == 0); }
  SECTION("a lock for reading") {
    struct flock shared {};
    shared.l_type = F_RDLCK;
    REQUIRE(::fcntl(reader.get(), F_OFD_SETLK, &shared) == 0);
  }
  FolderLock lock;
  REQUIRE_NOTHROW(lock.take(folder.path()));
  struct stat facts {};
  REQUIRE(::stat(path.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
}

namespace {

constexpr uid_t kReader = 1001;
constexpr uid_t kWriter = 1002;

/// As `setfacl -m u:1001:r,u:1002:rw` does, with a mask that lets the group write.
bool give_acl(const fs::path& path, const char* kind) {
  struct Entry {
    std::uint16_t tag;
    std::uint16_t rights;
    std::uint32_t id;
  };
  constexpr std::uint32_t kNone = ~0U;
  const std::array<Entry, 6> entries{{{0x01, 7, kNone},
                                      {0x02, 5, kReader},
                                      {0x02, 7, kWriter},
                                      {0x04, 5, kNone},
                                      {0x10, 7, kNone},
                                      {0x20, 5, kNone}}};
  struct {
    std::uint32_t version = 2;
    std::array<Entry, 6> entries;
  } acl{2, entries};
  return ::setxattr(path.c_str(), kind, &acl, sizeof acl, 0) == 0;
}

bool can_open(const fs::path& path, uid_t uid, int flags) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0)
    ::_exit(::setgroups(0, nullptr) == 0 && ::setgid(uid) == 0 && ::setuid(uid) == 0 &&
                    ::open(path.c_str(), flags) >= 0
                ? 0
                : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status == 0;
}

}  // namespace

TEST_CASE("a user who could only read by the folder's default ACL stopped its checkpoints",
          "[runtime][checkpoint]") {
  if (::geteuid() != 0) {
    WARN("SKIPPED: needs root");
    return;
  }
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 0755);
  if (!give_acl(folder.path(), "system.posix_acl_default")) {
    WARN("SKIPPED: no ACLs here");
    return;
  }
  const auto path = folder / ".lock";
  const auto mask = GENERATE(as<mode_t>{}, 0022, 0002, 0077);
  const auto before = ::umask(mask);
  {
    // Left with the name of a process of another machine, and locked for reading since.
    leave_signature(folder.path());
    auto text = contents_of(path);
    const auto at = text.find("\"place\":") + 8;
    text.replace(at, text.find_first_of(",}", at) - at, "1");
    put_contents(path, text);
    ::chmod(path.c_str(), 0660);  // as close_to_readers() left it
  }
  const acc::UniqueFd reader{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct flock shared {};
  shared.l_type = F_RDLCK;
  REQUIRE(::fcntl(reader.get(), F_OFD_SETLK, &shared) == 0);
  FolderLock lock;
  CHECK_NOTHROW(lock.take(folder.path()));
  ::umask(before);
  CHECK_FALSE(can_open(path, kReader, O_RDONLY));
  CHECK(can_open(path, kWriter, O_RDWR));
}

TEST_CASE("those who may write to the lock file may read it, and nobody else",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto [mask, mode] = GENERATE(table<mode_t, mode_t>(
      {{0022, 0600}, {0002, 0660}, {0027, 0600}, {0077, 0600}, {0000, 0666}}));
  struct Watched : FileOps {
    mode_t first = 0;  ///< before the lock is taken; others may open the file already
    int lock(int fd) override {
      struct stat facts {};
      if (::fstat(fd, &facts) == 0) first = facts.st_mode & 0777;
      return FileOps::lock(fd);
    }
  };
  const auto before = ::umask(mask);
  Watched files;
  FolderLock lock;
  lock.take(
      folder.path(), [](const std::string&) {}, files);
  ::umask(before);
  CHECK(files.first == mode);
  struct stat facts {};
  REQUIRE(::stat((folder / ".lock").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == mode);
}

TEST_CASE("a folder whose .lock is a directory or a link isn't saved to as if it were locked",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto lock = folder / ".lock";
  std::string kind;
  SECTION("a directory") {
    kind = "is a directory";
    fs::create_directory(lock);
  }
  SECTION("a link") {
    kind = "is a symbolic link";
    fs::create_symlink("/dev/null", lock);
  }
  SECTION("a link to nothing") {
    kind = "is a symbolic link";
    fs::create_symlink(folder / "nowhere", lock);
  }
  SECTION("a pipe") {
    kind = "is no regular file";
    REQUIRE(::mkfifo(lock.c_str(), 0600) == 0);
  }
  CHECK_THAT(refusal(folder.path()), Catch::Contains(lock.native()) && Catch::Contains(kind) &&
                                         Catch::Contains("remove it"));
  // A whole save says the same, on all ranks, and leaves nothing.
  std::atomic<int> refused{0};
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    SmallRun run{group.rank(), 2, 1};
    try {
      checkpoints.save(1, run.state());
    } catch (const Error& error) {
      refused += error.code() == ErrorCode::system ? 1 : 0;
    }
  });
  CHECK(refused == 2);
  CHECK(names_in(folder.path()) == std::vector<std::string>{".lock"});
}

TEST_CASE("on a file system without locks that is told once", "[runtime][checkpoint]") {
  struct WithoutLocks : FileOps {
    int error = ENOLCK;
    int lock(int) override { return error; }
  };
  const TemporaryFolder folder;
  WithoutLocks files;
  files.error = GENERATE(ENOLCK, EOPNOTSUPP, ENOSYS);
  std::vector<std::string> told;
  auto options = quiet_options(folder.path());
  options.tell = [&](const std::string& what) { told.push_back(what); };
  auto checkpoints = checkpointer_with(ProcessGroup::single(), options, files);
  SmallRun run{0, 1, 1};
  checkpoints.save(1, run.state());
  checkpoints.save(2, run.state());
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Catch::Contains((folder / ".lock").native()) &&
                          Catch::Contains(std::generic_category().message(files.error)));
  CHECK(list_checkpoints(folder.path()) == std::vector<std::uint64_t>{2, 1});
}

TEST_CASE("those of one process share a folder, and its lock goes with the last of them",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  {
    FolderLock one;
    one.take(folder.path());
    {
      FolderLock other;
      other.take(folder.path());
      other.take(folder.path());
    }
    CHECK(names_in(folder.path()) == std::vector<std::string>{".lock"});
    fs::remove(folder / ".lock");
    one.take(folder.path());
    CHECK(names_in(folder.path()) == std::vector<std::string>{".lock"});
  }
  CHECK(names_in(folder.path()).empty());
  FolderLock lock;
  lock.take(folder / "never made");  // the save itself will tell
}

TEST_CASE("a save that was repeated after its folder couldn't be read replaced another run's",
          "[runtime][checkpoint]") {
  struct Scarce : FileOps {
    rlimit before{};
    bool is_scarce = true;
    int lock(int fd) override {
      if (is_scarce) {
        const rlimit none{3, before.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &none);  // what is open stays so
      }
      return FileOps::lock(fd);
    }
  };
  const TemporaryFolder folder;
  Scarce files;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files.before) == 0);
  auto checkpoints = checkpointer_with(ProcessGroup::single(), quiet_options(folder.path()), files);
  REQUIRE_FALSE(checkpoints.newest_number());
  save_seed(folder.path(), 1, 1, 5);  // another run, which has ended
  SmallRun run{0, 1, 1};
  const auto said = [&] {
    std::string text;
    try {
      checkpoints.save(1, run.state());
    } catch (const Error& error) {
      text = error.what();
    }
    ::setrlimit(RLIMIT_NOFILE, &files.before);
    files.is_scarce = false;
    return text;
  };
  CHECK_THAT(said(), Catch::Contains(std::generic_category().message(EMFILE)));
  CHECK_THAT(said(), Catch::Contains("another run"));
  CHECK(loaded_seed(folder.path(), 1) == 5);
}

TEST_CASE("a run whose .lock another one had signed meanwhile took it for its own all the time",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const auto path = folder / ".lock";
  FolderLock lock;
  CHECK(lock.take(folder.path()));
  CHECK_FALSE(lock.take(folder.path()));
  put_contents(path, "");  // by a version before this one, which has ended
  CHECK(lock.take(folder.path()));
  CHECK_FALSE(lock.take(folder.path()));
  std::string other;
  {
    const TemporaryFolder elsewhere;
    const Neighbour writes{elsewhere.path(), "nightly", "0"};
    other = contents_of(elsewhere / ".lock");
    put_contents(path, other);
    std::string said;
    try {
      lock.take(folder.path());
    } catch (const Error& error) {
      said = error.what();
    }
    CHECK_THAT(said, Catch::Contains("'nightly'"));
    lock.release();
    CHECK(contents_of(path) == other);  // it isn't removed under its holder
  }
  CHECK(lock.take(folder.path()));
}

TEST_CASE("a lock that another thread had emptied and not yet released was another job's",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  put_contents(folder / ".lock", "");
  SlowRelease files;
  FolderLock lock;
  CHECK_NOTHROW(lock.take(
      folder.path(), [](const std::string&) {}, files));
}
