#include "tests/support/stale_event.hpp"

#include "agent/fanout/transport.hpp"
#include "agent/life_line.hpp"
#include "agent/parent_watch.hpp"
#include "agent/spawn.hpp"
#include "common/clocks.hpp"
#include "common/poll_now.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>

#include <csignal>
#include <optional>
#include <string>

using namespace acc;
using namespace acc::agent;
using Descriptor = boost::asio::posix::stream_descriptor;

TEST_CASE("a wait of Asio's completes with success where there is nothing", "[agent][stale]") {
  boost::asio::io_context io{1};
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  Descriptor quiet{io};
  std::optional<boost::system::error_code> completed;
  test::StaleEvent stale{io};
  stale.hit([&] {
    quiet.assign(ends[0]);
    quiet.async_wait(Descriptor::wait_read, [&](auto error) { completed = error; });
  });
  // The other tests here test nothing where this is no longer so.
  REQUIRE(completed);
  CHECK(!*completed);
  CHECK(!is_ready(ends[0], POLLIN));
  REQUIRE(::write(ends[1], "x", 1) == 1);
  CHECK(is_ready(ends[0], POLLIN));
  ::close(ends[1]);
  CHECK(is_ready(ends[0], 0));  // a hang-up
  CHECK(!is_ready(-1, POLLIN));
}

TEST_CASE("a guardian that lives was believed to be gone", "[agent][stale]") {
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    for (;;) ::pause();
  }
  boost::asio::io_context io{1};
  int lost = 0;
  ParentWatch watch{io, {guardian}, {[&](const std::string&) { ++lost; }, [](int) {}, [] {}}};
  test::StaleEvent stale{io};
  stale.hit([&] { watch.begin(std::nullopt); });
  CHECK(lost == 0);
  ::kill(guardian, SIGKILL);
  const auto until = clock_now() + std::chrono::seconds{10};
  while (lost == 0 && clock_now() < until) {
    io.restart();
    io.run_one_for(std::chrono::seconds{1});
  }
  CHECK(lost == 1);
  ::waitpid(guardian, nullptr, 0);
}

TEST_CASE("a launch over many hosts waited for ever for one that had ended", "[agent][stale]") {
  boost::asio::io_context io{1};
  Spawner spawner;
  Transport transport{io};
  Transport::Pipes pipes;
  std::optional<ExitStatus> status;
  test::StaleEvent stale{io};
  stale.hit([&] {
    REQUIRE(transport.start(spawner, {"cat"}, false, pipes,
                            [&](ExitStatus how) { status = how; }) == 0);
  });
  CHECK(!status);
  transport.close_line();
  const auto until = clock_now() + std::chrono::seconds{10};
  while (!status && clock_now() < until) {
    io.restart();
    io.run_one_for(std::chrono::seconds{1});
  }
  REQUIRE(status);
  CHECK(*status == ExitStatus{Exited{0}});
}
