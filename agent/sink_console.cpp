#include "agent/sink_console.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace acc::agent {

namespace {

constexpr Millis kTerminalRetry{1000};
constexpr int kLookMillis = 1000;  // at a reader that leaves no room

// A terminal or pipe that is opened anew has flags of its own, so our writes can be interrupted
// without O_NONBLOCK on what we share with the shell and the workers.
int reopen(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

// Bytes that the reader of a pipe has not read yet; -1 where that can't be asked.
int bytes_unread(int fd) {
  int bytes = 0;
  return ::ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : -1;
}

}  // namespace

BatchSink::BatchSink(std::function<void()> wake)
    : Sink{std::move(wake)}, interrupt_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}

void BatchSink::push(std::string& batch) {
  if (batch.empty()) return;
  Lock lock{mutex_};
  const std::size_t bytes = batch.size();
  if (next_.empty())
    next_.swap(batch);
  else
    next_.append(batch);
  batch.clear();
  added(lock, bytes);
}

void BatchSink::write_some(Lock& lock) {
  writing_.swap(next_);
  lock.unlock();
  std::string_view rest = writing_;
  while (!rest.empty() && !is_cut_short()) {
    rest.remove_prefix(write_once(rest));
    written_.store(writing_.size() - rest.size());
  }
  lock.lock();
  if (!end_batch(lock, rest)) return;
  std::uint64_t count = 0;  // else no wait would last any more
  [[maybe_unused]] const auto n = ::read(interrupt_.get(), &count, sizeof count);
}

void BatchSink::discard_queue() {
  count_dropped(next_);
  forget(next_.size());
  std::string{}.swap(next_);
}

std::size_t BatchSink::refuse(std::string_view bytes, int error) {
  refused_at_ = std::chrono::steady_clock::now();
  lose(bytes, error);
  set_refused(error);  // after the counting: this makes the loop look at the counts
  return bytes.size();
}

bool BatchSink::waits_for_retry() const {
  return refused() != 0 && std::chrono::steady_clock::now() < refused_at_ + kTerminalRetry;
}

// A pipe becomes writable when a page of it is free. Whoever reads it line by line may need minutes
// for that (`| while read line`), and is no stuck reader.
void BatchSink::wait_writable(int fd) {
  pollfd fds[] = {{fd, POLLOUT, 0}, {interrupt_.get(), POLLIN, 0}};
  for (int before = bytes_unread(fd); ::poll(fds, 2, kLookMillis) == 0;) {
    const int now = bytes_unread(fd);
    if (now < before) saw_reader();
    before = now;
  }
}

void BatchSink::interrupt() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(interrupt_.get(), &one, sizeof one);
}

ConsoleSink::ConsoleSink(int fd, std::function<void()> wake)
    : BatchSink{std::move(wake)}, fd_{fd}, piece_{std::size_t{256} << 10U} {
  struct stat target {};
  if (::fstat(fd, &target) != 0 || S_ISREG(target.st_mode)) return;
  regular_ = false;
  own_.reset(S_ISCHR(target.st_mode) || S_ISFIFO(target.st_mode) ? reopen(fd) : -1);
  if (own_)
    fd_ = own_.get();
  else
    piece_ = 4096;  // a blocking write shows no progress before it has put all of it
}

std::size_t ConsoleSink::write_once(std::string_view bytes) {
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

bool ConsoleSink::is_gone(int error) const {
  return error == EPIPE || error == EBADF || error == ECONNRESET || (error == EIO && !regular_);
}

}  // namespace acc::agent
