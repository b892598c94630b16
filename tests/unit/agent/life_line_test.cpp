#include "agent/life_line.hpp"

#include "agent/fanout/orders.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/secret.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <string>

using namespace acc;
using namespace acc::agent;
using Catch::Contains;

namespace {

/// A pipe that holds these bytes and has no writer any more.
UniqueFd pipe_with(const std::string& bytes) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
  REQUIRE(::write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  ::close(ends[1]);
  return UniqueFd{ends[0]};
}

std::string rest_of(int fd) {
  char buffer[64];
  const auto n = ::read(fd, buffer, sizeof buffer);
  return {buffer, static_cast<std::size_t>(n < 0 ? 0 : n)};
}

}  // namespace

TEST_CASE("the secret and the orders before the start are read, and nothing behind them",
          "[agent][life_line]") {
  const std::string secret(64, 'a');
  const auto line =
      pipe_with(secret + "\n" + encode(SetFolder{"/a b\n"}) + encode(SetVariable{"NAME", "x=y"}) +
                encode(Prepare{"t0k"}) + encode(Go{}));
  const auto read = rendezvous::read_secret(line.get(), rendezvous::Behind::orders);
  REQUIRE(read.has_value());
  CHECK(read->keys.at(0).bytes.view() == secret);
  const auto start = read_life_line(line.get());
  REQUIRE(start.has_value());
  CHECK(start->folder == "/a b\n");
  REQUIRE(start->variables.size() == 1);
  CHECK(start->variables[0].value == "x=y");
  CHECK(start->line.token == "t0k");
  CHECK(rest_of(line.get()) == "go\n");
}

TEST_CASE("a life line without an order to prepare says what is wrong", "[agent][life_line]") {
  const auto problem = [](const std::string& bytes) {
    const auto start = read_life_line(pipe_with(bytes).get());
    REQUIRE(!start.has_value());
    return start.error().what;
  };
  CHECK_THAT(problem(""), Contains("closed before the order to prepare"));
  CHECK_THAT(problem("folder /x\n"), Contains("closed before"));
  CHECK_THAT(problem("hello\n"), Contains("'hello', which is no order"));
  CHECK_THAT(problem(std::string(kMaxOrder + 2, 'x')), Contains("longer than"));
}

TEST_CASE("what is no secret is refused without showing it", "[agent][life_line]") {
  const auto behind = GENERATE(rendezvous::Behind::nothing, rendezvous::Behind::orders);
  const auto problem = [&](const std::string& bytes) {
    const auto secret = rendezvous::read_secret(pipe_with(bytes).get(), behind);
    REQUIRE(!secret.has_value());
    return secret.error().what;
  };
  CHECK_THAT(problem(""), Contains("closed before the end of a line"));
  CHECK_THAT(problem("hunter2\n"), Contains("32 characters") && !Contains("hunter2"));
  CHECK_THAT(problem(std::string(40, '\x01') + "\n"), Contains("not plain text"));
  CHECK_THAT(problem(std::string(5000, 'a')), Contains("longer than 4096"));
}

TEST_CASE("secrets of two jobs differ", "[agent][life_line]") {
  const auto one = rendezvous::random_secret();
  const auto other = rendezvous::random_secret();
  REQUIRE((one.has_value() && other.has_value()));
  CHECK(one->view().size() == 64);
  CHECK(one->view() != other->view());
}

TEST_CASE("a descriptor that was taken leaves /dev/null in its place", "[agent][life_line]") {
  auto line = pipe_with("x");
  const auto taken = take_descriptor(line.get());
  REQUIRE(taken.has_value());
  const UniqueFd moved{*taken};
  CHECK(*taken != line.get());
  CHECK(rest_of(line.get()).empty());
  CHECK(rest_of(moved.get()) == "x");
  CHECK((::fcntl(moved.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(!take_descriptor(-1).has_value());
  CHECK(!take_descriptor(999'999).has_value());
}
