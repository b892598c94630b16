#include "runtime/shm/waiting.hpp"

#include "common/unique_fd.hpp"
#include "runtime/shm/process_watch.hpp"
#include "runtime/wake_event.hpp"
#include "tests/support/descriptors.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace acc;
using namespace acc::runtime::shm;
using namespace acc::testing;
using namespace std::chrono_literals;

TEST_CASE("counts go round", "[runtime][shm]") {
  CHECK(reached(16, 16));
  CHECK(reached(32, 16));
  CHECK_FALSE(reached(16, 32));
  CHECK(reached(16, 0xfffffff0));  // behind the turn
  CHECK_FALSE(reached(0xfffffff0, 16));
  CHECK_FALSE(reached(31, 32));  // pokes don't count
}

TEST_CASE("a poke wakes a sleeper without raising the count", "[runtime][shm]") {
  Word word{};
  word.count = 3 * kStep;
  std::atomic<bool> woke{false};
  std::thread sleeper{[&] {
    sleep_on(word, 3 * kStep, 60s);
    woke = true;
  }};
  // Whether it sleeps already or is about to: the number it would sleep on is another now.
  poke(word);
  sleeper.join();
  CHECK(woke);
  CHECK(word.count / kStep == 3);
  for (int i = 0; i < 40; ++i) poke(word);
  CHECK(word.count / kStep == 3);
}

TEST_CASE("with more ranks than cores no rank spins", "[runtime][shm]") {
  CHECK(spin_policy(2, 2).pauses > 0);
  CHECK(spin_policy(3, 2).pauses == 0);
  CHECK(spin_policy(3, 2).yields < spin_policy(2, 2).yields);
  CHECK(quota_cores() >= 1);
}

TEST_CASE("the end of a process is seen, and how it ended", "[runtime][shm]") {
  const auto watch = ProcessWatch::shared();
  CHECK(ProcessWatch::shared() == watch);
  const auto end_of = [&](auto end) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      end();
      ::_exit(7);
    }
    std::promise<std::string> how;
    const auto id = watch->watch(pid, [&](const std::string& text) { how.set_value(text); });
    auto told = how.get_future();
    const bool in_time = told.wait_for(10s) == std::future_status::ready;
    ::waitpid(pid, nullptr, 0);
    watch->forget(id);
    return in_time ? told.get() : "nothing was told";
  };
  CHECK(end_of([] {}) == "exited with status 7");
  CHECK(end_of([] { ::raise(SIGKILL); }) == "was killed by SIGKILL (signal 9)");
  const auto by_default = [] {
    ::signal(SIGTERM, SIG_DFL);  // not as Catch has it
    ::raise(SIGTERM);
  };
  CHECK(end_of(by_default) == "was killed by SIGTERM (signal 15)");
}

TEST_CASE("a process that is gone already is told, one that is forgotten isn't", "[runtime][shm]") {
  ProcessWatch watch;
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  std::promise<void> told;
  const auto id = watch.watch(gone, [&](const std::string&) { told.set_value(); });
  CHECK(told.get_future().wait_for(10s) == std::future_status::ready);
  watch.forget(id);

  const pid_t lives = ::fork();
  if (lives == 0) {
    ::pause();
    ::_exit(0);
  }
  CHECK(process_state(lives) != 0);
  bool called = false;
  watch.forget(watch.watch(lives, [&](const std::string&) { called = true; }));
  ::kill(lives, SIGKILL);
  ::waitpid(lives, nullptr, 0);
  CHECK_FALSE(called);
  CHECK(process_state(lives) == 0);
}

namespace {

/// Closes the descriptors that `make` opens, as a program does that closes all it doesn't know.
template <class Make>
void without_descriptors(Make make) {
  for (const int fd : descriptors_of(make)) close_of_others(fd);
}

/// A child of this process that waits to be killed.
pid_t make_sleeper() {
  const pid_t made = ::fork();
  if (made == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a failure of this test leaves none behind
    ::pause();
    ::_exit(0);
  }
  return made;
}

/// The threads of this process: their ids.
std::set<pid_t> threads() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/task"})
    found.insert(std::stoi(entry.path().filename().string()));
  return found;
}

}  // namespace

TEST_CASE("a program that had closed all descriptors hung at its end", "[runtime][shm]") {
  const pid_t pid = ::fork();  // what it closes is not ours
  if (pid == 0) {
    ::alarm(20);
    {
      std::unique_ptr<ProcessWatch> watch;
      without_descriptors([&] {
        const auto before = threads();
        watch = std::make_unique<ProcessWatch>();
        // Its thread polls when it sleeps: it waits for nothing else.
        for (const pid_t thread : threads())
          while (!before.contains(thread) && process_state(thread) != 'S')
            std::this_thread::yield();
      });
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  CHECK(status == 0);  // not killed by SIGALRM
}

TEST_CASE("a process whose descriptor the program closed is neither lost nor unwatched",
          "[runtime][shm]") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    constexpr std::size_t kLooks = 5;
    struct Child {
      pid_t pid = make_sleeper();
      std::atomic<int> ended{0};  ///< how often that was told
    };
    std::array<Child, 2 + kLooks> children;
    ProcessWatch watch;
    const auto begin = [&](Child& one) {
      watch.watch(one.pid, [&one](const std::string&) { ++one.ended; });
    };
    const auto end = [](Child& one) {
      ::kill(one.pid, SIGKILL);
      ::waitpid(one.pid, nullptr, 0);
      while (one.ended < 1) std::this_thread::yield();
    };
    Child& first = children[0];
    Child& second = children[1];
    without_descriptors([&] {
      begin(first);
      begin(second);
    });
    end(first);
    // With each of these ends the watch looks at the second one again, which lives.
    for (std::size_t i = 2; i < children.size(); ++i) {
      begin(children[i]);
      end(children[i]);
    }
    if (second.ended != 0) ::_exit(1);
    end(second);
    for (const Child& one : children)
      if (one.ended != 1) ::_exit(2);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("files that a program opened in place of the runtime's got eight bytes and were closed",
          "[runtime][shm]") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    std::atomic<int> ended{0};
    const auto count = [&](const std::string&) { ++ended; };
    const auto first = make_sleeper();
    const auto second = make_sleeper();
    std::vector<int> files;
    {
      std::unique_ptr<ProcessWatch> watch;
      files = descriptors_of([&] {
        watch = std::make_unique<ProcessWatch>();
        watch->watch(first, count);
      });
      put_files_in_place_of(files);  // a file is always readable: no death of the first
      watch->watch(second, count);
      ::kill(second, SIGKILL);
      ::waitpid(second, nullptr, 0);
      while (ended < 1) std::this_thread::yield();
    }
    ::_exit(harm_to_files(files) | (ended != 1 ? 1 : 0));
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an event wakes its thread once for any number of settings", "[runtime][shm]") {
  runtime::WakeEvent event;
  REQUIRE(event);
  for (int i = 0; i < 100'000; ++i) event.set();  // more than its socket holds
  pollfd wait{};
  CHECK(event.poll({&wait, 1}, -1) == 1);
  CHECK(event.poll({&wait, 1}, 0) == 0);
  std::jthread setter{[&] { event.set(); }};
  CHECK(event.poll({&wait, 1}, -1) == 1);
  CHECK_FALSE(event.is_lost());
}

TEST_CASE("bytes in a socket that the program opened in an event's place are not taken",
          "[runtime][shm]") {
  std::unique_ptr<runtime::WakeEvent> event;
  const auto fds = descriptors_of([&] { event = std::make_unique<runtime::WakeEvent>(); });
  REQUIRE(fds.size() == 2);
  int users[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, users) == 0);
  REQUIRE(::write(users[1], "data", 4) == 4);
  pollfd wait{};
  std::jthread opener{[&] {
    for (const int fd : fds) replace_of_others(fd, users[0]);
  }};
  event->poll({&wait, 1}, -1);
  opener.join();
  event->set();
  event->poll({&wait, 1}, -1);
  CHECK(event->is_lost());
  event.reset();
  char text[8];
  CHECK(::recv(users[0], text, sizeof text, MSG_DONTWAIT) == 4);
  for (const int fd : fds) CHECK(::close(fd) == 0);
  for (const int fd : users) ::close(fd);
}

// poll(2) may begin just after the program has put its own sockets in the event's place: they stay
// silent, and the event can't be set. So no wait is without end.
TEST_CASE(
    "a program that closed an event's descriptors as its thread went to sleep hung at its end",
    "[runtime][shm]") {
  runtime::WakeEvent event;
  pollfd wait{};
  auto looked_around = std::async(std::launch::async, [&] { return event.poll({&wait, 1}, -1); });
  const bool is_back = looked_around.wait_for(10s) == std::future_status::ready;
  if (!is_back) event.set();
  CHECK(is_back);
  CHECK(looked_around.get() == 0);
  CHECK_FALSE(event.is_lost());
}

TEST_CASE("an event whose descriptors the program closes wakes its thread, which looks around then",
          "[runtime][shm]") {
  std::unique_ptr<runtime::WakeEvent> event;
  const auto fds = descriptors_of([&] { event = std::make_unique<runtime::WakeEvent>(); });
  REQUIRE(fds.size() == 2);
  pollfd wait{};
  std::jthread closer{[&] {
    for (const int fd : fds) close_of_others(fd);
  }};
  event->poll({&wait, 1}, -1);  // returns
  closer.join();
  event->set();
  event->poll({&wait, 1}, -1);  // after a while
  CHECK(event->is_lost());
  CHECK(event->fd() == -1);
}
