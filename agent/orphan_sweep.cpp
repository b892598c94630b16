#include "agent/orphan_sweep.hpp"

#include "agent/containment.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

namespace acc::agent {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStandstill{5'000};
constexpr milliseconds kLongestWait{100};
// Deaths arrive in thousands. Each look walks through all children, so it waits for more of them as
// long as the last look took.
constexpr milliseconds kLongestRest{20};

void drain(int signal_fd) {
  signalfd_siginfo info{};
  while (::read(signal_fd, &info, sizeof info) == sizeof info) {
  }
}

class OrphanSweep {
 public:
  OrphanSweep(const std::unordered_set<pid_t>& not_ours, int signal_fd)
      : not_ours_{not_ours}, signal_fd_{signal_fd} {}

  int run() {
    if (::waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return 0;
    auto moved = steady_clock::now();
    for (;;) {
      const auto begin = steady_clock::now();
      drain(signal_fd_);  // before the look: what dies during it is heard of
      if (look()) moved = steady_clock::now();
      if (living_ == 0 || steady_clock::now() - moved >= kStandstill) return killed_;
      rest(steady_clock::now() - begin);
    }
  }

 private:
  // Reaps the dead and kills the living. @return whether any had died since the last look.
  bool look() {
    bool moved = false;
    living_ = 0;
    for (const pid_t pid : children_of_this_process()) {
      if (not_ours_.contains(pid)) continue;
      switch (look_at_child(pid)) {
        case ChildState::none:
          break;
        case ChildState::dead:
          take(pid);
          moved = true;
          break;
        case ChildState::alive:
          ++living_;
          ::kill(pid, SIGKILL);
      }
    }
    // One that was reaped may have had children, which are ours now.
    if (moved && living_ == 0) living_ = has_children() ? 1 : 0;
    return moved;
  }

  void take(pid_t pid) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) != pid) return;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ++killed_;
  }

  [[nodiscard]] bool has_children() const {
    for (const pid_t pid : children_of_this_process()) {
      if (!not_ours_.contains(pid)) return true;
    }
    return false;
  }

  void rest(steady_clock::duration look_took) const {
    const auto pause = std::min<steady_clock::duration>(look_took, kLongestRest);
    ::poll(nullptr, 0, static_cast<int>(std::chrono::duration_cast<milliseconds>(pause).count()));
    pollfd deaths{signal_fd_, POLLIN, 0};
    ::poll(&deaths, 1, static_cast<int>(kLongestWait.count()));
  }

  const std::unordered_set<pid_t>& not_ours_;
  int signal_fd_;
  std::size_t living_ = 0;  ///< in the last look
  int killed_ = 0;
};

}  // namespace

int sweep_orphans(const std::unordered_set<pid_t>& not_ours, int signal_fd) {
  return OrphanSweep{not_ours, signal_fd}.run();
}

}  // namespace acc::agent
