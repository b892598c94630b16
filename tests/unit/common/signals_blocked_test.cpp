#include "common/signals_blocked.hpp"

#include <catch2/catch.hpp>

#include <thread>

using acc::AllSignalsBlocked;

namespace {

bool blocks(int signo) {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return ::sigismember(&now, signo) == 1;
}

}  // namespace

TEST_CASE("a thread that is made while all signals are blocked takes none", "[common]") {
  sigset_t chosen, before;
  ::sigemptyset(&chosen);
  ::sigaddset(&chosen, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &chosen, &before);
  bool in_thread = false;
  std::thread thread;
  {
    const AllSignalsBlocked blocked;
    CHECK(blocks(SIGTSTP));
    thread =
        std::thread{[&] { in_thread = blocks(SIGTERM) && blocks(SIGTSTP) && blocks(SIGCHLD); }};
  }
  CHECK_FALSE(blocks(SIGTSTP));
  CHECK(blocks(SIGUSR2));  // as before
  thread.join();
  CHECK(in_thread);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
