#include "runtime/group/monitor.hpp"

#include "tests/unit/runtime/group/scripted_backend.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace acc::runtime;
using acc::testing::Scripted;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

struct Setting {
  Setting(const char* name, const std::string& value) : name_{name} {
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { ::unsetenv(name_); }
  const char* name_;
};

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "acc-monitor-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

std::vector<nlohmann::json> lines_of(const fs::path& file) {
  std::ifstream in{file};
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

template <class F>
bool within(std::chrono::seconds limit, F f) {
  const auto end = Clock::now() + limit;
  while (!f()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// What goes to stderr while it lives.
class Stderr {
 public:
  Stderr() : file_{std::tmpfile()}, before_{::dup(2)} { ::dup2(::fileno(file_), 2); }
  ~Stderr() {
    ::dup2(before_, 2);
    ::close(before_);
    std::fclose(file_);
  }
  std::string text() const {
    std::string all(4096, '\0');
    all.resize(static_cast<std::size_t>(::pread(::fileno(file_), all.data(), all.size(), 0)));
    return all;
  }

 private:
  std::FILE* file_;
  int before_;
};

int g_user_signals = 0;

/// SIGTERM as a program has it, without the handler of the test framework.
struct PlainSigterm {
  PlainSigterm() {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGTERM, &plain, &before);
  }
  ~PlainSigterm() { ::sigaction(SIGTERM, &before, nullptr); }
  struct sigaction before {};
};

}  // namespace

TEST_CASE("a group that breaks writes its last calls where ACC_FLIGHT_DIR says", "[monitor]") {
  const Folder folder;
  const Setting setting{"ACC_FLIGHT_DIR", (folder.path / "made").string()};
  GroupOptions options;
  options.name = "data/parallel";
  Scripted s{1, 2, options};
  s.group.barrier();
  s.script->on_call = [](const Call&) {
    throw Error{ErrorCode::peer_lost, "rank 0 was lost", {0}};
  };
  CHECK_THROWS_AS(s.group.barrier(), Error);
  const auto file = folder.path / "made" /
                    ("flight-data_parallel-rank1-" + std::to_string(::getpid()) + ".jsonl");
  const auto lines = lines_of(file);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["group"] == "data/parallel");
  CHECK(lines[0]["why"] == "rank 0 was lost");
  CHECK(lines[0]["size"] == 2);
  CHECK(lines[1]["state"] == "done");
  CHECK(lines[2]["state"] == "failed");
}

TEST_CASE("SIGUSR2 writes the last calls of every group, and an earlier handler is called too",
          "[monitor]") {
  struct sigaction mine {};
  mine.sa_handler = [](int) { ++g_user_signals; };
  struct sigaction before {};
  ::sigaction(SIGUSR2, &mine, &before);
  const Folder folder;
  const Setting setting{"ACC_FLIGHT_DIR", folder.path.string()};
  {
    Scripted zero{0, 2};
    Scripted one{1, 2};
    one.group.barrier();
    one.script->hold(true);
    const auto work = one.group.barrier_async();
    REQUIRE(one.script->await_calls(2));
    ::raise(SIGUSR2);
    const auto pid = std::to_string(::getpid());
    const auto complete = [&](const char* name, std::size_t lines) {
      const auto file = folder.path / (std::string{"flight-world-"} + name + "-" + pid + ".jsonl");
      return within(10s, [&] {
        try {
          return lines_of(file).size() == lines;
        } catch (const nlohmann::json::exception&) {
          return false;  // half written
        }
      });
    };
    CHECK(complete("rank0", 1));
    CHECK(complete("rank1", 3));
    one.script->hold(false);
    work.wait();
  }
  CHECK(g_user_signals == 1);
  ::raise(SIGUSR2);  // with no group left it is harmless
  CHECK(g_user_signals == 2);
  ::sigaction(SIGUSR2, &before, nullptr);
}

TEST_CASE("SIGTERM ends a rank only after its last calls are written", "[monitor]") {
  const PlainSigterm plain;
  const Folder folder;
  const Setting setting{"ACC_FLIGHT_DIR", folder.path.string()};
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Scripted s{1, 2};
    Scripted broken{1, 2};
    broken.script->on_call = [](const Call&) {
      throw Error{ErrorCode::peer_lost, "rank 0 was lost", {0}};
    };
    try {
      broken.group.barrier();
    } catch (const Error&) {
      fs::rename(folder.path / ("flight-world-rank1-" + std::to_string(::getpid()) + ".jsonl"),
                 folder.path / "broken");
    }
    s.group.barrier();
    s.script->hold(true);
    const auto work = s.group.barrier_async();
    (void)s.script->await_calls(2);
    ::kill(::getpid(), SIGTERM);
    ::pause();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  const auto lines =
      lines_of(folder.path / ("flight-world-rank1-" + std::to_string(child) + ".jsonl"));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["why"] == "SIGTERM");
  CHECK(lines[2]["state"] == "running");
  CHECK(lines_of(folder.path / "broken")[0]["why"] == "rank 0 was lost");
}

TEST_CASE("SIGTERM is as deadly as ever to a forked child and when no group is left", "[monitor]") {
#if defined(__SANITIZE_THREAD__)
  WARN("skipped: ThreadSanitizer calls handlers later than the kernel, and no threads in a child");
  return;
#endif
  const PlainSigterm plain;
  const Folder folder;
  const Setting setting{"ACC_FLIGHT_DIR", folder.path.string()};
  const auto end_of_child = [](const std::function<void()>& before) {
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      before();
      ::kill(::getpid(), SIGTERM);
      ::pause();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  };
  {
    Scripted s;
    CHECK(end_of_child([] {}) == SIGTERM);
  }
  CHECK(end_of_child([] { Scripted s; }) == SIGTERM);
}

TEST_CASE("a program's own handler of SIGTERM is called, and decides", "[monitor]") {
  struct sigaction mine {
  }, before{};
  mine.sa_handler = [](int) { ++g_user_signals; };
  ::sigaction(SIGTERM, &mine, &before);
  const Folder folder;
  const Setting setting{"ACC_FLIGHT_DIR", folder.path.string()};
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    g_user_signals = 0;
    Scripted s{1, 2};
    ::kill(::getpid(), SIGTERM);
    const auto file = folder.path / ("flight-world-rank1-" + std::to_string(::getpid()) + ".jsonl");
    const bool written = within(10s, [&] { return fs::exists(file); });
    ::_exit(g_user_signals == 1 && written ? 7 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 7);
  ::sigaction(SIGTERM, &before, nullptr);
}

TEST_CASE("a folder for flight records that can't be written is told when the group is made",
          "[monitor]") {
  const Setting setting{"ACC_FLIGHT_DIR", "/proc/no/such/folder"};
  const Stderr told;
  {
    Scripted s;
    Scripted again;
  }
  Scripted later;
  CHECK_THAT(told.text(), Catch::StartsWith("acc: ACC_FLIGHT_DIR=/proc/no/such/folder: ") &&
                              Catch::EndsWith("no flight records will be written\n"));
  const auto text = told.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("ACC_WATCHDOG tells which call runs for how long and for whom it waits", "[monitor]") {
  const Setting setting{"ACC_WATCHDOG", "40ms"};
  const Stderr told;
  {
    Scripted s{0, 4};
    s.script->missing = {1, 3};
    s.script->hold(true);
    float x = 0;
    const auto work = s.group.all_reduce_async(&x, &x, 1, DType::f32);
    REQUIRE(within(10s, [&] {
      return told.text().find(
                 "group 'world', rank 0: all_reduce f32 x1 sum #1 has been running for ") !=
             std::string::npos;
    }));
    CHECK_THAT(told.text(), Catch::Contains(", waiting for ranks 1,3\n"));
    s.script->hold(false);
    work.wait();
  }
}

TEST_CASE("a watchdog's time that can't be read is refused", "[monitor]") {
  const Setting setting{"ACC_WATCHDOG", "soon"};
  CHECK_THROWS_WITH((Scripted{}), Catch::StartsWith("ACC_WATCHDOG: "));
}

TEST_CASE("groups come and go while the monitor looks", "[monitor]") {
  const Setting setting{"ACC_WATCHDOG", "20ms"};
  for (int i = 0; i < 200; ++i) {
    Scripted a;
    a.group.barrier();
    Scripted b;
    b.group.barrier();
  }
  SUCCEED("nothing hung");
}
