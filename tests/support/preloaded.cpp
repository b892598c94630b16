// LD_PRELOAD=preloaded.so PRELOADED=what: a user's library within an acc-launch, before main().
//   give-up  ends an agent that gets SIGRTMIN+9, as an error of its own does
//   late-guardian  the same, and the guardian goes on only once a worker has switched echo off
// Of one that prints its plan alone:
//   leave  leaves a process behind, in a session of its own, and lets the program run
//   hang   never lets it run, and ignores SIGTERM
//   flood  writes without end
//   die    is killed, as by the kernel for its memory
//   cut    writes the beginning of a plan, and ends as if all were well
#include <fcntl.h>
#include <pthread.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

[[noreturn]] void stay() {
  for (;;) ::pause();
}

pid_t g_guardian = 0;

// No event tells of another mode. The agent, which has the handler, too, isn't held up.
void await_echo_off() {
  constexpr int kLooks = 20'000;  // of 1 ms and more
  termios modes{};
  for (int i = 0; i < kLooks && ::getpid() == g_guardian; ++i) {
    if (::tcgetattr(STDIN_FILENO, &modes) != 0 || (modes.c_lflag & ECHO) == 0) return;
    ::usleep(1000);
  }
}

__attribute__((constructor)) void begin(int count, char** words) {
  const char* what = std::getenv("PRELOADED");
  const bool is_trial = count > 1 && words[1] == std::string_view{"--print_plan"};
  if (what == nullptr) return;
  const bool is_worker = std::getenv("RANK") != nullptr;
  if (what == std::string_view{"late-guardian"} && !is_worker) {
    g_guardian = ::getpid();
    ::pthread_atfork(nullptr, await_echo_off, nullptr);
  }
  if (what == std::string_view{"give-up"} || what == std::string_view{"late-guardian"})
    ::signal(SIGRTMIN + 9, [](int) { ::_exit(70); });  // docs/exit-codes.md: agent_lost
  if (!is_trial) return;
  if (what == std::string_view{"hang"}) {
    ::signal(SIGTERM, SIG_IGN);
    stay();
  }
  if (what == std::string_view{"flood"}) {
    const std::string page(4096, 'x');
    while (::write(STDOUT_FILENO, page.data(), page.size()) > 0) continue;
    ::_exit(0);
  }
  if (what == std::string_view{"die"}) ::raise(SIGKILL);
  if (what == std::string_view{"cut"}) {
    constexpr std::string_view kBegin = "{\n  \"kind\": \"elastic\",";
    ::_exit(::write(STDOUT_FILENO, kBegin.data(), kBegin.size()) > 0 ? 0 : 1);
  }
  if (what != std::string_view{"leave"} || ::fork() != 0) return;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  for (int fd = 0; fd < 1024; ++fd) ::close(fd);
  stay();
}

}  // namespace
