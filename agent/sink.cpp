#include "agent/sink.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace acc::agent {

namespace {
// A sink that takes less than this within the policy's patience (100 ms) does not count as moving:
// it would hold the workers to 40 KB/s or less.
constexpr std::size_t kStep = 4096;
}  // namespace

Instant Sink::last_progress() const {
  return Instant{Instant::duration{last_progress_.load(std::memory_order_acquire)}};
}

void Sink::start_thread() {
  started_ = true;
  waiting_ = false;
  // Signals are the loop's: the new thread inherits a full mask.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread{[self = shared_from_this()] { self->run(); }}.detach();  // stop() waits for `ended_`
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Sink::run() {
  Lock lock{mutex_};
  while (!is_stopping()) {
    if (queued() == 0) {
      quiet_.notify_all();
      waiting_ = true;
      work_.wait(lock, [this] { return queued() != 0 || is_stopping(); });
      waiting_ = false;
      continue;
    }
    write_some(lock);
  }
  ended_ = true;
  quiet_.notify_all();
}

void Sink::added(Lock& lock, std::size_t bytes) {
  queued_.fetch_add(bytes, std::memory_order_acq_rel);
  if (!started_) start_thread();
  const bool wake = waiting_;
  lock.unlock();
  if (wake) work_.notify_one();
}

void Sink::progressed(std::size_t bytes) {
  since_progress_ += bytes;
  const std::size_t left = queued_.fetch_sub(bytes) - bytes;
  if (since_progress_ >= kStep || left == 0) {
    since_progress_ = 0;
    last_progress_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                         std::memory_order_release);
  }
  // Sequentially consistent with wake_when_below: one of the two sides sees the other's change.
  const std::size_t below = wake_below_.load();
  if (below != 0 && left < below && wake_below_.exchange(0) != 0) call_wake();
}

void Sink::lose(std::string_view bytes, int error) {
  {
    const std::lock_guard guard{loss_mutex_};
    if (lost_.bytes == 0) lost_.since = std::chrono::steady_clock::now();
    lost_.bytes += bytes.size();
    lost_.lines += lines_in(bytes);
    lost_.error = error;
  }
  progressed(bytes.size());
}

void Sink::count_dropped(std::string_view bytes) {
  const std::lock_guard guard{loss_mutex_};
  if (lost_.bytes == 0) lost_.since = std::chrono::steady_clock::now();
  lost_.bytes += bytes.size();
  lost_.lines += lines_in(bytes);
}

std::uint64_t Sink::lines_in(std::string_view bytes) const {
  return static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

LossCount Sink::lost() const {
  const std::lock_guard guard{loss_mutex_};
  return lost_;
}

void Sink::set_refused(int error) {
  if (refused_.exchange(error, std::memory_order_acq_rel) != error) call_wake();
}

void Sink::call_wake() {
  const std::lock_guard guard{wake_mutex_};
  if (wake_) wake_();
}

void Sink::wake_when_below(std::size_t bytes) {
  wake_below_.store(bytes + 1);
  if (queued_.load() <= bytes && wake_below_.exchange(0) != 0)
    call_wake();  // it got there just before
}

bool Sink::wait_written(Instant deadline) {
  Lock lock{mutex_};
  return quiet_.wait_until(lock, deadline, [this] { return queued() == 0 || ended_; }) &&
         queued() == 0;
}

void Sink::stop(Millis bound) {
  {
    const std::lock_guard guard{wake_mutex_};
    wake_ = nullptr;
  }
  Lock lock{mutex_};
  stopping_.store(true, std::memory_order_release);
  if (!started_) return;
  work_.notify_all();
  interrupt();
  quiet_.wait_until(lock, std::chrono::steady_clock::now() + bound, [this] { return ended_; });
}

}  // namespace acc::agent
