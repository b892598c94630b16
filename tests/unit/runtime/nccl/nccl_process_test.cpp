// Ranks as processes (tests/support/fake_nccl/nccl_rank.cpp): what needs a process to die, to stop
// or to be ended.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "fakes.hpp"

using namespace acc::testing;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

using Clock = std::chrono::steady_clock;

struct Setting {
  int size = 2;
  std::string nccl_faults{};
  std::string cuda_faults{};
  int limit_ms = 500;
  int abort_limit_ms = 10'000;
};

/// One rank; stdout and stderr come through one pipe.
class RankProcess {
 public:
  RankProcess(int rank, const std::string& store, const Setting& setting) {
    const auto folder = program_folder();
    const auto program = (folder / "nccl_rank").string();
    std::vector<std::string> words{program, store, std::to_string(setting.limit_ms),
                                   std::to_string(setting.abort_limit_ms)};
    std::vector<std::string> variables{
        "RANK=" + std::to_string(rank),
        "WORLD_SIZE=" + std::to_string(setting.size),
        "ACC_NCCL_LIBRARY=" + (folder / "libfake_nccl.so").string(),
        "ACC_CUDART_LIBRARY=" + (folder / "libfake_cudart.so").string(),
        "FAKE_NCCL=" + setting.nccl_faults,
        "FAKE_CUDA=" + setting.cuda_faults};
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (auto& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    const int spawned = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                      pointers(words).data(), pointers(variables).data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    output_ = ends[0];
    REQUIRE(spawned == 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() {
    ::close(output_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void send(int signal) const { ::kill(pid_, signal); }
  /// All that it has said, when `word` is among it.
  std::string await(const std::string& word) {
    const auto deadline = Clock::now() + 45s;
    while (text_.find(word) == std::string::npos && read_more(deadline)) {
    }
    return text_;
  }
  /// Its status as a shell tells it, and all that it has said.
  std::pair<int, std::string> await_end() {
    const auto deadline = Clock::now() + 45s;
    while (read_more(deadline)) {
    }
    int status = 0;
    if (Clock::now() >= deadline) send(SIGKILL);
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_};
  }

 private:
  bool read_more(Clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd port{output_, POLLIN, 0};
    if (left <= 0ms || ::poll(&port, 1, static_cast<int>(left.count())) <= 0) return false;
    std::array<char, 4096> buffer{};
    const auto got = ::read(output_, buffer.data(), buffer.size());
    if (got <= 0) return false;
    text_.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
  }
  pid_t pid_ = -1;
  int output_ = -1;
  std::string text_;
};

std::string store_name() {
  static int number = 0;
  return "acc-nccl-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

/// MS of an "error CODE [RANKS] MS WHAT" line.
int milliseconds_of(const std::string& text) {
  const auto line = text.find("error ");
  const auto at = line == std::string::npos ? line : text.find("] ", line);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + 2);
}

}  // namespace

SCENARIO("a rank is killed or stopped: at the limit the others name it", "[runtime][nccl]") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  const auto store = store_name();
  const Setting setting{.size = 3, .limit_ms = 500};
  RankProcess zero{0, store, setting};
  RankProcess one{1, store, setting};
  RankProcess two{2, store, setting};
  for (auto* rank : {&zero, &one, &two}) REQUIRE_THAT(rank->await("running"), Contains("running"));
  one.send(signal);
  for (auto* rank : {&zero, &two}) {
    const auto [status, text] = rank->await_end();
    CHECK(status == 3);
    CHECK_THAT(text, Contains("error timed_out [rank 1]") && Contains("rank 1 does not answer"));
    CHECK(milliseconds_of(text) >= 450);
  }
}

SCENARIO("an abort that hangs: the process ends with a status of its own", "[runtime][nccl]") {
  const auto store = store_name();
  RankProcess zero{
      0, store, {.size = 2, .nccl_faults = "abort=hang@0", .limit_ms = 400, .abort_limit_ms = 600}};
  RankProcess one{1, store, {.size = 2, .limit_ms = 400}};
  REQUIRE_THAT(zero.await("running"), Contains("running"));
  REQUIRE_THAT(one.await("running"), Contains("running"));
  one.send(SIGKILL);
  const auto [status, text] = zero.await_end();
  CHECK(status == 74);
  CHECK_THAT(text, Contains("acc: group 'world', rank 0 of 2: ncclCommAbort did not return within "
                            "600 ms: the process ends with status 74"));
}

SCENARIO("a driver that hangs: the watchdog doesn't hang with it", "[runtime][nccl]") {
  const auto store = store_name();
  RankProcess zero{0, store, {.size = 2, .limit_ms = 400}};
  RankProcess one{
      1, store, {.size = 2, .cuda_faults = "query=hang", .limit_ms = 400, .abort_limit_ms = 500}};
  const auto [status, text] = one.await_end();
  CHECK(status == 74);
  CHECK_THAT(text, Contains("the CUDA driver has not answered for"));
  const auto [peers_status, peers_text] = zero.await_end();
  CHECK(peers_status == 3);
  CHECK_THAT(peers_text, Contains("error timed_out"));
}

SCENARIO("one rank has another version of NCCL: all are told which", "[runtime][nccl]") {
  const auto store = store_name();
  RankProcess zero{0, store, {.size = 3}};
  RankProcess one{1, store, {.size = 3, .nccl_faults = "version=21805"}};
  RankProcess two{2, store, {.size = 3}};
  for (auto* rank : {&zero, &one, &two}) {
    const auto [status, text] = rank->await_end();
    CHECK(status == 3);
    CHECK_THAT(text, Contains("error nccl [rank 1]") &&
                         Contains("the ranks have different versions of NCCL: rank 1: 2.18.5, "
                                  "ranks 0,2: 2.28.9"));
  }
}
