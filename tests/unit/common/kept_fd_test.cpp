#include "common/kept_fd.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace acc;

TEST_CASE("a kept descriptor closes its own file", "[common]") {
  KeptFd kept{UniqueFd{::memfd_create("ours", MFD_CLOEXEC)}};
  const int number = kept.get();
  CHECK(kept.is_ours());
  auto moved = std::move(kept);
  CHECK(moved.is_ours());
  CHECK_FALSE(kept.is_ours());  // NOLINT(bugprone-use-after-move): empty by its contract
  moved.reset();
  CHECK(::fcntl(number, F_GETFD) == -1);
}

TEST_CASE("a file that the program opened under the number stays open", "[common]") {
  KeptFd kept{UniqueFd{::memfd_create("ours", MFD_CLOEXEC)}};
  const int number = kept.get();
  const UniqueFd users{::memfd_create("users", MFD_CLOEXEC)};
  REQUIRE(::dup2(users.get(), number) == number);
  CHECK_FALSE(kept.is_ours());
  kept.reset();
  CHECK_FALSE(kept);
  CHECK(::fcntl(number, F_GETFD) != -1);
  ::close(number);
}

TEST_CASE("a kept descriptor gives away its own file only", "[common]") {
  int pair[2];
  REQUIRE(::pipe(pair) == 0);
  acc::KeptFd first{acc::UniqueFd{pair[0]}}, second{acc::UniqueFd{pair[1]}};
  CHECK(first.take().get() == pair[0]);  // and closes it here
  CHECK_FALSE(first);
  const acc::UniqueFd users{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  REQUIRE(::dup2(users.get(), pair[1]) == pair[1]);
  CHECK_FALSE(second.take());
  CHECK(::close(pair[1]) == 0);
}

TEST_CASE("a descriptor that the program closed is not closed again", "[common]") {
  int number = -1;
  {
    KeptFd kept{UniqueFd{::memfd_create("ours", MFD_CLOEXEC)}};
    number = kept.get();
    ::close(number);
    CHECK_FALSE(kept.is_ours());
    REQUIRE(::dup2(STDIN_FILENO, number) == number);
  }
  CHECK(::close(number) == 0);
}
