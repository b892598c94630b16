#include "agent/evidence/tool_runs.hpp"

#include "common/duration.hpp"
#include "common/program_path.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace acc::agent::evidence {

namespace {

constexpr std::size_t kMostOutput = 4 * 1024 * 1024;  // bytes of one program
constexpr Millis kReapLook{10};

struct Child {
  ToolRun* run = nullptr;
  pid_t pid = -1;
  UniqueFd out;
};

[[noreturn]] void become(const ToolRun& run, int out, pid_t parent) {
  ::signal(SIGTERM, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a debugger lets its process go then
  if (::getppid() != parent) ::_exit(127);
  ::setpgid(0, 0);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::close_range(3, ~0U, 0);
  std::vector<char*> words;
  for (const auto& word : run.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::setenv("DEBUGINFOD_URLS", "", 1);  // nothing is fetched over the network
  ::execv(words[0], words.data());
  ::_exit(127);
}

Child begin(ToolRun& run) {
  Child child;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return child;
  child.out.reset(ends[0]);
  const UniqueFd in{ends[1]};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  child.run = &run;
  const pid_t parent = ::getpid();
  child.pid = ::fork();
  if (child.pid == 0) become(run, ends[1], parent);
  return child;
}

// @return whether more may follow
bool take_in(Child& child) {
  char chunk[65536];
  for (;;) {
    const auto n = ::read(child.out.get(), chunk, sizeof chunk);
    if (n > 0) {
      auto& output = child.run->output;
      const auto room = kMostOutput - std::min(output.size(), kMostOutput);
      output.append(chunk, std::min(static_cast<std::size_t>(n), room));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
}

void signal_all(const std::vector<Child>& children, int signo) {
  for (const auto& child : children) {
    ::kill(-child.pid, signo);
    ::kill(child.pid, signo);
  }
}

// One that is stuck in the kernel is left to our own parent.
void reap(std::vector<Child>& children, Millis patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::erase_if(children, [](const Child& child) {
      return ::waitpid(child.pid, nullptr, WNOHANG) == child.pid;
    });
    if (children.empty() || std::chrono::steady_clock::now() >= until) return;
    ::poll(nullptr, 0, static_cast<int>(kReapLook.count()));
  }
}

// A debugger that gets SIGKILL leaves its process stopped, one that gets SIGTERM lets it go.
void end_unfinished(std::vector<Child>& children) {
  signal_all(children, SIGTERM);
  reap(children, kTermTime);
  signal_all(children, SIGKILL);
  reap(children, kKillTime);
}

}  // namespace

void run_tools(std::span<ToolRun> runs, std::size_t at_once,
               std::chrono::steady_clock::time_point deadline) {
  std::vector<Child> children;
  std::size_t next = 0;
  for (;;) {
    const auto left = std::chrono::ceil<Millis>(deadline - std::chrono::steady_clock::now());
    while (left > Millis{0} && children.size() < at_once && next < runs.size()) {
      auto child = begin(runs[next++]);
      if (child.pid > 0) children.push_back(std::move(child));
    }
    if (children.empty()) return;
    if (left <= Millis{0}) break;
    std::vector<pollfd> waits;
    for (const auto& child : children) waits.push_back({child.out.get(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), static_cast<int>(left.count()));
    for (std::size_t i = children.size(); i-- > 0;) {
      if (waits[i].revents == 0 || take_in(children[i])) continue;
      ::waitpid(children[i].pid, nullptr, 0);
      children[i].run->is_finished = true;
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  end_unfinished(children);
}

std::string find_tool(const std::string& name) {
  const char* path = std::getenv("PATH");
  return find_on_path(name,
                      std::string{path != nullptr ? path : ""} + ":/usr/local/bin:/usr/bin:/bin");
}

}  // namespace acc::agent::evidence
