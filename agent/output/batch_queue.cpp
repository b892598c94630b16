#include "agent/output/batch_queue.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

namespace acc::agent {

namespace {

constexpr std::size_t kBatch = std::size_t{128} << 10U;  // handed over before the end of the turn
constexpr Millis kRetry{1000};
constexpr std::string_view kEraseLine = "\r\033[K";
constexpr int kLookMillis = 1000;  // at a reader that leaves no room

// Bytes that the reader of a pipe has not read yet; -1 where that can't be asked.
int bytes_unread(int fd) {
  int bytes = 0;
  return ::ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : -1;
}

}  // namespace

BatchQueue::BatchQueue(std::string where, DropPolicy::Limits limits, std::function<void()> wake)
    : OutputQueue{std::move(where), limits, std::move(wake)},
      interrupt_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}

void BatchQueue::commit(std::size_t mark, Writer writer, Origin origin) {
  if (batch_.size() == mark) return;
  if (!admit(origin, batch_.size() - mark)) {
    count_dropped(std::string_view{batch_}.substr(mark));
    batch_.resize(mark);
    line_owner_ = nullptr;
    return;
  }
  if (takes_records()) return;
  if (is_mid_line_ && line_owner_ != writer.who &&
      (writer.needs_fresh_line || line_owner_ == nullptr))
    batch_.insert(mark, 1, '\n');
  is_mid_line_ = batch_.back() != '\n' && batch_.back() != '\r';
  is_at_line_start_ = batch_.back() == '\n';
  line_owner_ = writer.who;
  if (batch_.size() >= kBatch) flush();
}

void BatchQueue::ended(const void* who) {
  if (line_owner_ == who) line_owner_ = nullptr;
}

void BatchQueue::set_status(std::string line) {
  status_ = std::move(line);
  // Lines don't pile up before a slow terminal: the next one says it, too. Nothing else would take
  // the last one away.
  if (needs_status() && (queued() == 0 || status_.empty())) flush();
}

bool BatchQueue::needs_status() const {
  return shown_status_ != (is_at_line_start_ ? status_ : std::string_view{});
}

void BatchQueue::flush() {
  if (batch_.empty() && !needs_status()) return;
  if (!shown_status_.empty()) batch_.insert(0, kEraseLine);
  shown_status_ = is_at_line_start_ ? status_ : std::string{};
  batch_.append(shown_status_);
  if (!std::exchange(is_open_, true)) open();
  Lock lock{mutex_};
  const std::size_t bytes = batch_.size();
  if (next_.empty())
    next_.swap(batch_);
  else
    next_.append(batch_);
  batch_.clear();
  added(lock, bytes);
}

void BatchQueue::write_some(Lock& lock) {
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

void BatchQueue::discard_queue() {
  count_dropped(next_);
  forget(next_.size());
  std::string{}.swap(next_);
}

std::size_t BatchQueue::refuse(std::string_view bytes, int error) {
  refused_at_ = clock_now();
  lose(bytes, error);
  set_refused(error);  // after the counting: this makes the loop look at the counts
  return bytes.size();
}

bool BatchQueue::waits_for_retry() const {
  return refused() != 0 && clock_now() < refused_at_ + kRetry;
}

// A pipe becomes writable when a page of it is free. A reader that takes a line at a time may need
// minutes for that (`| while read line`), and is not stuck.
void BatchQueue::wait_writable(int fd) {
  pollfd fds[] = {{fd, POLLOUT, 0}, {interrupt_.get(), POLLIN, 0}};
  for (int before = bytes_unread(fd); ::poll(fds, 2, kLookMillis) == 0 && !is_cut_short();) {
    const int now = bytes_unread(fd);
    if (now < before) saw_reader();
    before = now;
  }
}

void BatchQueue::interrupt() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(interrupt_.get(), &one, sizeof one);
}

}  // namespace acc::agent
