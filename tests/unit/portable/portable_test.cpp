/// cmake/portable: our functions beside those of this machine's C library, which dlsym finds.
#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

template <class Function>
Function* of_libc(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

int constructed = 0;
[[gnu::constructor]] void count() { ++constructed; }

template <class Ours, class Theirs>
void check_same_file(Ours ours, Theirs theirs) {
  struct stat a {};
  struct stat b {};
  REQUIRE(ours(&a) == 0);
  REQUIRE(theirs(&b) == 0);
  CHECK(std::memcmp(&a, &b, sizeof a) == 0);
}

/// A file that is in use as descriptor `at`.
struct Opened {
  explicit Opened(int at) : fd{::fcntl(STDERR_FILENO, F_DUPFD, at)} {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { ::close(fd); }
  int fd;
};

timespec in_future(clockid_t clock, long nanoseconds) {
  timespec now{};
  ::clock_gettime(clock, &now);
  now.tv_nsec += nanoseconds;
  now.tv_sec += now.tv_nsec / 1'000'000'000;
  now.tv_nsec %= 1'000'000'000;
  return now;
}

}  // namespace

TEST_CASE("a portable program's functions are its own, and no other library gets them", "[portable]") {
  const auto theirs = of_libc<const char*(int)>("sigabbrev_np");
  CHECK(reinterpret_cast<void*>(&::sigabbrev_np) != reinterpret_cast<void*>(theirs));
  Dl_info place{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(theirs), &place) != 0);
  CHECK(std::string{place.dli_fname}.find("libc.so") != std::string::npos);
}

TEST_CASE("a portable program runs its constructors, once", "[portable]") { CHECK(constructed == 1); }

TEST_CASE("a portable program catches exceptions, also of another thread and another library's frames", "[portable]") {
  CHECK_THROWS_AS(std::stoi("no number"), std::invalid_argument);
  std::string caught;
  std::thread{[&] {
    try {
      // qsort's frames are libc's: the unwinder passes through them.
      int pair[] = {2, 1};
      std::qsort(pair, 2, sizeof *pair, [](const void*, const void*) -> int { throw std::runtime_error{"in libc"}; });
    } catch (const std::exception& error) {
      caught = error.what();
    }
  }}.join();
  CHECK(caught == "in libc");
}

TEST_CASE("signals have the same short names in a portable program", "[portable]") {
  const auto theirs = of_libc<const char*(int)>("sigabbrev_np");
  REQUIRE(theirs != nullptr);
  for (int signo = -1; signo <= SIGRTMAX + 1; ++signo) {
    CAPTURE(signo);
    const char* ours = ::sigabbrev_np(signo);
    const char* libc = theirs(signo);
    REQUIRE((ours == nullptr) == (libc == nullptr));
    if (libc != nullptr) CHECK(std::string{ours} == libc);
  }
}

TEST_CASE("files have the same state in a portable program", "[portable]") {
  using AtPath = int(const char*, struct stat*);
  const char* link = "/proc/self/exe";
  check_same_file([&](auto* to) { return ::stat(link, to); }, [&](auto* to) { return of_libc<AtPath>("stat")(link, to); });
  check_same_file([&](auto* to) { return ::lstat("/bin", to); }, [&](auto* to) { return of_libc<AtPath>("lstat")("/bin", to); });
  const int folder = ::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  check_same_file([&](auto* to) { return ::fstat(folder, to); }, [&](auto* to) { return of_libc<int(int, struct stat*)>("fstat")(folder, to); });
  check_same_file([&](auto* to) { return ::fstatat(folder, "bin", to, AT_SYMLINK_NOFOLLOW); },
                  [&](auto* to) { return of_libc<int(int, const char*, struct stat*, int)>("fstatat")(folder, "bin", to, AT_SYMLINK_NOFOLLOW); });
  ::close(folder);
  struct stat none {};
  errno = 0;
  CHECK(::stat("/nothing here", &none) == -1);
  CHECK(errno == ENOENT);
}

TEST_CASE("random bytes and memory files come from the kernel", "[portable]") {
  char bytes[300] = {};
  CHECK(::getrandom(bytes, 16, 0) == 16);
  CHECK(::getentropy(bytes, 256) == 0);
  CHECK(std::string(bytes, 256) != std::string(256, '\0'));
  errno = 0;
  CHECK(::getentropy(bytes, 257) == -1);
  CHECK(errno == EIO);
  ::explicit_bzero(bytes, sizeof bytes);
  CHECK(std::string(bytes, sizeof bytes) == std::string(sizeof bytes, '\0'));
  const int fd = ::memfd_create("portable", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  CHECK(::close_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd), 0) == 0);
  CHECK(::fcntl(fd, F_GETFD) == -1);
}

TEST_CASE("a spawned child keeps descriptors below the first that it is to lose", "[portable]") {
  const Opened kept{50};
  const Opened lost{60};
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  REQUIRE(::posix_spawn_file_actions_addclosefrom_np(&files, 55) == 0);
  const auto script = "[ -e /proc/self/fd/" + std::to_string(kept.fd) + " ] && [ ! -e /proc/self/fd/" + std::to_string(lost.fd) + " ]";
  std::string words[] = {"sh", "-c", script};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, "/bin/sh", &files, nullptr, argv, environ) == 0);
  ::posix_spawn_file_actions_destroy(&files);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("without the function of 2.30 a wait by the monotonic clock ends after its time, and by a signal", "[portable]") {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  ::pthread_mutex_lock(&mutex);
  const auto end = in_future(CLOCK_MONOTONIC, 20'000'000);
  int result = 0;
  while (result == 0) result = ::pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &end);
  CHECK(result == ETIMEDOUT);
  const auto now = in_future(CLOCK_MONOTONIC, 0);
  CHECK((now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec)));
  CHECK(::pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &end) == ETIMEDOUT);  // past already

  bool is_set = false;
  std::thread setter{[&] {
    ::pthread_mutex_lock(&mutex);
    is_set = true;
    ::pthread_cond_signal(&condition);
    ::pthread_mutex_unlock(&mutex);
  }};
  auto late = in_future(CLOCK_MONOTONIC, 0);
  late.tv_sec += 60;
  for (result = 0; result == 0 && !is_set;) result = ::pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &late);
  CHECK(result == 0);
  ::pthread_mutex_unlock(&mutex);
  setter.join();
}
