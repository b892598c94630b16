#include "tests/unit/agent/output/support.hpp"

#include <sys/stat.h>
#include <sys/wait.h>

using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

/// detect_console() in a child whose descriptors 1 and 2 are these; the facts come back as its exit
/// code.
int facts_with(int out, int err, const std::string& journal_stream) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out, 1);
    ::dup2(err, 2);
    ::setenv("JOURNAL_STREAM", journal_stream.c_str(), 1);
    const ConsoleFacts facts = detect_console();
    ::_exit((facts.out_is_tty ? 1 : 0) | (facts.err_is_tty ? 2 : 0) | (facts.same_target ? 4 : 0) |
            (facts.journal_out ? 8 : 0) | (facts.journal_err ? 16 : 0));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

}  // namespace

SCENARIO("what our console is", "[agent][output]") {
  int a[2];
  int b[2];
  REQUIRE(::pipe2(a, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(b, O_CLOEXEC) == 0);
  const acc::UniqueFd terminal{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  REQUIRE(::unlockpt(terminal.get()) == 0);
  const acc::UniqueFd tty{::open(::ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC)};
  struct stat is {};
  REQUIRE(::fstat(a[1], &is) == 0);
  const std::string named = std::to_string(is.st_dev) + ":" + std::to_string(is.st_ino);

  CHECK(facts_with(a[1], b[1], "") == 0);
  CHECK(facts_with(a[1], a[1], "") == 4);
  CHECK(facts_with(tty.get(), tty.get(), "") == 7);
  CHECK(facts_with(tty.get(), b[1], "") == 1);
  CHECK(facts_with(b[1], a[1], named) == 16);
  CHECK(facts_with(a[1], b[1], named) == 8);
  CHECK(facts_with(a[1], a[1], named) == 28);
  CHECK(facts_with(b[1], b[1], named) == 4);
  CHECK(facts_with(b[1], b[1], "nonsense") == 4);
  for (const int fd : {a[0], a[1], b[0], b[1]}) ::close(fd);
}
