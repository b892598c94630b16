#include "agent/output/console_queue.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace acc::agent {

// A terminal or pipe that is opened anew has flags of its own, so our writes can be interrupted
// without O_NONBLOCK on what we share with the shell and the workers.
void ConsoleQueue::open() {
  struct stat target {};
  if (::fstat(fd_, &target) != 0 || S_ISREG(target.st_mode)) return;
  regular_ = false;
  // Closed when we were started: /dev/null stands in its place, for reading (guardian.cpp).
  if ((::fcntl(fd_, F_GETFL) & O_ACCMODE) == O_RDONLY) return;
  if (S_ISCHR(target.st_mode) || S_ISFIFO(target.st_mode)) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd_);
    own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
  if (own_)
    fd_ = own_.get();
  else
    piece_ = 4096;  // a blocking write shows no progress before it has put all of it
}

std::size_t ConsoleQueue::write_once(std::string_view bytes) {
  if (gone_ || waits_for_retry()) {
    lose(bytes, refused());
    return bytes.size();
  }
  const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), piece_));
  if (n >= 0) {
    set_refused(0);
    progressed(static_cast<std::size_t>(n));
    return static_cast<std::size_t>(n);
  }
  const int why = errno;
  if (why == EAGAIN) wait_writable(fd_);
  if (why == EAGAIN || why == EINTR) return 0;
  gone_ = is_gone(why);
  if (gone_ && is_cut_short()) {  // given up, and counted, before the reader went away
    set_refused(EPIPE);
    return 0;
  }
  return refuse(bytes, gone_ ? EPIPE : why);
}

bool ConsoleQueue::is_gone(int error) const {
  return error == EPIPE || error == EBADF || error == ECONNRESET || (error == EIO && !regular_);
}

}  // namespace acc::agent
