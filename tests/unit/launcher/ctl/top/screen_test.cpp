// What is drawn is tested with the whole program on a terminal (tests/integration/test_top.py).
#include "launcher/ctl/top/screen.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

using acc::UniqueFd;
using namespace acc::ctl::top;

namespace {

enum Outcome : int { kKept, kLost, kNoScreen };

/// In a child, whose terminal is `name`: a signal that comes before a screen is drawn.
Outcome draw_with_pending(int signo, const char* name) {
  ::setsid();
  const int terminal = ::open(name, O_RDWR);
  if (terminal < 0 || ::dup2(terminal, STDIN_FILENO) < 0 || ::dup2(terminal, STDOUT_FILENO) < 0)
    return kNoScreen;
  const winsize size{24, 80, 0, 0};
  ::ioctl(terminal, TIOCSWINSZ, &size);
  ::setenv("TERM", "xterm", 1);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signo);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  auto screen = Screen::open();
  if (!screen) return kNoScreen;
  Outcome outcome = kKept;
  for (const char* text : {"one", "two", "three"}) {  // the first frame is drawn in another way
    ::raise(signo);
    Frame frame;
    frame.lines.push_back({{text}});
    (*screen)->draw(frame);
    sigset_t pending;
    ::sigpending(&pending);
    if (::sigismember(&pending, signo) != 1) outcome = kLost;
  }
  return outcome;
}

}  // namespace

TEST_CASE("Ctrl-Z was lost when it was pressed shortly before the screen was drawn", "[top]") {
  const UniqueFd user{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  REQUIRE(user);
  REQUIRE(::grantpt(user.get()) == 0);
  REQUIRE(::unlockpt(user.get()) == 0);
  const char* const name = ::ptsname(user.get());
  const int signo = GENERATE(SIGTSTP, SIGINT, SIGWINCH);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(draw_with_pending(signo, name));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kKept);
}
