#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace acc::testing {

/// Runs `body` in a child that can't start a thread; it returns the child's exit code, 0 where all
/// is well. The limit counts all processes of a user; root's isn't limited, so nobody's is tried.
template <class Body>
void check_without_threads(Body body) {
  constexpr int kNotTried = 77;
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit none{1, 1};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0 || ::setuid(65534) != 0) ::_exit(kNotTried);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotTried) {
    WARN("not tried: this user can't become nobody");
    return;
  }
  CHECK(status == 0);
}

}  // namespace acc::testing
