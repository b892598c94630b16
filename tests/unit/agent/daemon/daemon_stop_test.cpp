#include "agent/daemon/daemon.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <new>
#include <string>

#include "fake_jobs.hpp"

using namespace acc;
using namespace acc::agent::daemon;

TEST_CASE("a daemon whose stop threw for want of memory didn't end", "[daemon]") {
  const acc::testing::TestFolder folder;
  Settings settings;
  settings.state_dir = folder.path().string();
  settings.socket = (folder / "agent.sock").string();
  settings.log_level = acc::log::Level::error;
  const auto start_jobs = [&](boost::asio::io_context&, const Settings&) -> Result<JobsRun> {
    JobsRun run;
    run.jobs = std::make_unique<FakeJobs>(settings.state_dir);
    run.reload = [](Settings) -> boost::asio::awaitable<Result<void>> { co_return Result<void>{}; };
    run.close = [] { throw std::bad_alloc{}; };
    ::raise(SIGTERM);  // handled once the daemon serves
    return run;
  };
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);  // ends one that would stay
    ::_exit(run_daemon([&]() -> Result<Settings> { return settings; }, start_jobs));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
