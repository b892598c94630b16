#include "agent/shell_interrupt.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc::agent;

namespace {
constexpr int kInterrupted = 128 + SIGINT;
}

TEST_CASE("after Ctrl-C had ended a trial the shell began the next one", "[agent][signals]") {
  const InterruptsSeen of_group{.by_key = true};
  CHECK(shell_notice(kInterrupted, of_group) == ShellNotice::death);
  const InterruptsSeen of_worker{.by_key_in_workers_terminal = true};
  CHECK(shell_notice(kInterrupted, of_worker) == ShellNotice::group_and_death);
}

TEST_CASE("a script that had the key itself gets no second SIGINT", "[agent][signals]") {
  // The first press reached the worker alone, the second came while no worker had the terminal.
  const InterruptsSeen seen{.by_key = true, .by_key_in_workers_terminal = true};
  CHECK(shell_notice(kInterrupted, seen) == ShellNotice::death);
}

TEST_CASE("SIGINT by kill() ends with an exit code", "[agent][signals]") {
  CHECK(shell_notice(kInterrupted, {}) == ShellNotice::exit_code);
  CHECK(shell_notice(kInterrupted, {.by_process = true}) == ShellNotice::exit_code);
  const InterruptsSeen after_pdb{.by_process = true, .by_key_in_workers_terminal = true};
  CHECK(shell_notice(kInterrupted, after_pdb) == ShellNotice::exit_code);
}

TEST_CASE("a job that Ctrl-C didn't end keeps its exit code", "[agent][signals]") {
  const InterruptsSeen all{.by_key = true, .by_process = true, .by_key_in_workers_terminal = true};
  for (const int code : {0, 1, 70, 128 + SIGTERM, 128 + SIGKILL})
    CHECK(shell_notice(code, all) == ShellNotice::exit_code);
}
