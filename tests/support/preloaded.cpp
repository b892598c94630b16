// LD_PRELOAD=preloaded.so PRELOADED=what: a user's library within an acc-launch that prints its
// plan, before main().
//   leave  leaves a process behind, in a session of its own, and lets the program run
//   hang   never lets it run, and ignores SIGTERM
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace {

[[noreturn]] void stay() {
  for (;;) ::pause();
}

__attribute__((constructor)) void begin(int count, char** words) {
  const char* what = std::getenv("PRELOADED");
  const bool is_trial = count > 1 && words[1] == std::string_view{"--print_plan"};
  if (what == nullptr || !is_trial) return;
  if (what == std::string_view{"hang"}) {
    ::signal(SIGTERM, SIG_IGN);
    stay();
  }
  if (what != std::string_view{"leave"} || ::fork() != 0) return;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  for (int fd = 0; fd < 1024; ++fd) ::close(fd);
  stay();
}

}  // namespace
