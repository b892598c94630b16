#include "launcher/input_file.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iterator>

namespace acc::launcher {

namespace {

/// The signals to stop that are blocked; others end this process by themselves.
sigset_t blocked_stop_signals() {
  sigset_t blocked;
  sigset_t found;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  ::sigemptyset(&found);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (::sigismember(&blocked, signo) == 1) ::sigaddset(&found, signo);
  return found;
}

/// Opening it doesn't wait, and reading it ends at once until a writer has opened it.
bool is_named_pipe(int fd) {
  struct stat info {};
  struct statfs system {};
  return ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) && ::fstatfs(fd, &system) == 0 &&
         system.f_type != PIPEFS_MAGIC;
}

/// Until there is something to read, or the end. @return false: not in time
bool wait_for_bytes(int fd, std::chrono::milliseconds patience) {
  const sigset_t stop = blocked_stop_signals();
  const UniqueFd signals{::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK)};
  const int limit = ::isatty(fd) != 0 ? -1 : static_cast<int>(patience.count());
  for (;;) {
    pollfd waits[] = {{fd, POLLIN, 0}, {signals.get(), POLLIN, 0}};
    const int ready = ::poll(waits, std::size(waits), limit);
    if (ready < 0 && errno == EINTR) continue;
    signalfd_siginfo info{};
    if (ready > 0 && waits[1].revents != 0 &&
        ::read(signals.get(), &info, sizeof info) == sizeof info)
      ::_exit(128 + static_cast<int>(info.ssi_signo));  // which the guardian passes on
    return ready > 0;
  }
}

}  // namespace

Result<std::string> read_input(const std::string& path, std::size_t most_bytes,
                               std::chrono::milliseconds patience) {
  const auto attempted = "read '" + printable(path) + "'";
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (!file) return system_error(errno, attempted);
  std::string text;
  char buffer[65536];
  bool must_wait = is_named_pipe(file.get());
  while (text.size() <= most_bytes) {
    if (must_wait && !wait_for_bytes(file.get(), patience))
      return Error{Errc::timed_out, attempted + ": nothing came for " +
                                        std::to_string(patience.count() / 1000) +
                                        " s, and it hasn't ended: what writes into this pipe must "
                                        "close it"};
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    const int failed = n < 0 ? errno : 0;
    must_wait = failed == EAGAIN;
    if (must_wait || failed == EINTR) continue;
    if (failed != 0) return system_error(failed, attempted);
    if (n == 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace acc::launcher
