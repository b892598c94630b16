#include "common/exit_status.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;

TEST_CASE("exit code 9 and SIGKILL are different things", "[common]") {
  CHECK(exit_status_from_wait(9 << 8) == ExitStatus{Exited{9}});
  CHECK(exit_status_from_wait(SIGKILL) == ExitStatus{Signaled{SIGKILL, false}});
  CHECK(exit_status_from_wait(SIGSEGV | 0x80) == ExitStatus{Signaled{SIGSEGV, true}});
}

TEST_CASE("a shell would say 128 + the signal", "[common]") {
  CHECK(shell_code(Exited{7}) == 7);
  CHECK(shell_code(Signaled{SIGKILL, false}) == 137);
  CHECK(is_success(Exited{0}));
  CHECK_FALSE(is_success(Exited{1}));
  CHECK_FALSE(is_success(Signaled{SIGTERM, false}));
}

TEST_CASE("ends are told in words", "[common]") {
  CHECK(describe(ExitStatus{Exited{7}}) == "exited with code 7");
  CHECK(describe(ExitStatus{Signaled{SIGSEGV, true}}) == "killed by SIGSEGV (11), core dumped");
}

TEST_CASE("signals are read by name, short name and number", "[common]") {
  CHECK(signal_number("TERM") == SIGTERM);
  CHECK(signal_number("SIGUSR1") == SIGUSR1);
  CHECK(signal_number("usr2") == SIGUSR2);
  CHECK(signal_number("15") == SIGTERM);
  CHECK(signal_number("") == 0);
  CHECK(signal_number("TERMINATE") == 0);
  CHECK(signal_number("0") == 0);
  CHECK(signal_name(SIGTERM) == "SIGTERM");
}
