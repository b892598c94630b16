#include "agent/output/event_file_queue.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace acc::agent {

// Without a reader a FIFO is refused (ENXIO) and tried again; a slow one is waited for in
// write_once().
int EventFileQueue::open_file() {
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                   0644));
  if (!fd_) return errno;
  look_at_end();
  return 0;
}

// A job that was killed may have left half a line.
void EventFileQueue::look_at_end() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return;
  const UniqueFd reading{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
  char last = '\n';
  if (reading && ::pread(reading.get(), &last, 1, info.st_size - 1) == 1) is_torn_ = last != '\n';
}

std::size_t EventFileQueue::write_once(std::string_view bytes) {
  if (waits_for_retry()) {
    lose(bytes, refused());
    return bytes.size();
  }
  if (!fd_) {
    if (const int why = open_file(); why != 0) return refuse(bytes, why);
  }
  if (is_torn_) {
    const char end = '\n';
    if (::write(fd_.get(), &end, 1) == 1) is_torn_ = false;
  }
  const ssize_t n = is_torn_ ? -1 : ::write(fd_.get(), bytes.data(), bytes.size());
  if (n > 0) {
    const auto taken = static_cast<std::size_t>(n);
    set_refused(0);
    progressed(taken);
    is_in_line_ = bytes[taken - 1] != '\n';  // the rest of the line follows
    return taken;
  }
  const int why = n < 0 ? errno : ENOSPC;
  if (why == EAGAIN) wait_writable(fd_.get());
  if (why == EAGAIN || why == EINTR) return 0;
  is_torn_ = is_torn_ || is_in_line_;
  is_in_line_ = false;
  if (why == EPIPE) fd_.reset();  // its reader went away; another one may come
  return refuse(bytes, why);
}

}  // namespace acc::agent
