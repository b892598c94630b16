#include "agent/sink.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::agent {

namespace {
constexpr std::size_t kSpare = std::size_t{512} << 10U;  // a larger buffer is given back after use
constexpr Millis kStartAgain{1000};

Instant instant_of(const std::atomic<Instant::rep>& ticks) {
  return Instant{Instant::duration{ticks.load(std::memory_order_acquire)}};
}
}  // namespace

Instant Sink::last_progress() const { return instant_of(last_progress_); }

// With the lock held. A process limit (EAGAIN) must not end the job: the queue fills, and then the
// policy decides.
void Sink::ensure_thread() {
  if (started_ || clock_now() < start_again_) return;
  try {
    start_thread();
    start_error_ = 0;
  } catch (const std::system_error& failed) {
    start_error_ = failed.code().value();
    start_again_ = clock_now() + kStartAgain;
  }
}

void Sink::start_thread() {
  // Signals are the loop's: the new thread inherits a full mask.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto restore = [&] { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    // Not joined: stop() waits for `ended_`.
    std::thread{[self = shared_from_this()] { self->run(); }}.detach();
  } catch (...) {
    restore();
    throw;
  }
  restore();
  started_ = true;
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
  ensure_thread();
  const bool wake = waiting_;
  lock.unlock();
  if (wake) work_.notify_one();
}

void Sink::left_queue(std::size_t bytes) {
  const std::size_t left = queued_.fetch_sub(bytes) - bytes;
  saw_reader();
  // Sequentially consistent with wake_when_below: one of the two sides sees the other's change.
  const std::size_t below = wake_below_.load();
  if (below != 0 && left < below && wake_below_.exchange(0) != 0) call_wake();
}

void Sink::saw_reader() {
  last_progress_.store(clock_now().time_since_epoch().count(), std::memory_order_release);
}

void Sink::lose(std::string_view bytes, int error) {
  count_lost(bytes, error);
  left_queue(bytes.size());
}

void Sink::count_dropped(std::string_view bytes) { count_lost(bytes, start_error_); }

void Sink::count_lost(std::string_view bytes, int error) {
  const std::lock_guard guard{loss_mutex_};
  if (lost_.bytes == 0) lost_.since = clock_now();
  lost_.bytes += bytes.size();
  lost_.lines += lines_in(bytes);
  if (error != 0) lost_.error = error;
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
  {
    // While the policy lets nothing in, nobody else would try.
    const std::lock_guard guard{mutex_};
    ensure_thread();
  }
  wake_below_.store(bytes + 1);
  if (queued_.load() <= bytes && wake_below_.exchange(0) != 0)
    call_wake();  // it got there just before
}

bool Sink::wait_written(Instant from, Millis patience, Instant until) {
  Lock lock{mutex_};
  while (queued() != 0 && !ended_) {
    ensure_thread();
    const Instant give_up = std::min(until, std::max(from, instant_of(last_progress_)) + patience);
    if (clock_now() >= give_up) break;
    quiet_.wait_until(lock, started_ ? give_up : std::min(give_up, start_again_));
  }
  return queued() == 0;
}

void Sink::abandon(Millis bound) {
  Lock lock{mutex_};
  discard_queue();
  if (queued() == 0 || ended_ || forsaken_) return;
  abandoning_.store(true);
  interrupt();
  const auto has_let_go = [this] { return queued() == 0 || ended_; };
  if (quiet_.wait_until(lock, clock_now() + bound, has_let_go)) return;
  // In a write that blocks. Should it come back, a part of this was not lost after all.
  forsaken_ = true;
  count_dropped(std::string_view{writing_}.substr(written_.load()));
}

bool Sink::end_batch(Lock& lock, std::string_view rest) {
  const bool given_up = abandoning_.exchange(false);
  if (given_up && !rest.empty()) {
    if (!forsaken_) count_lost(rest, 0);
    left_queue(rest.size());
  }
  forsaken_ = false;
  std::string spent;
  spent.swap(writing_);
  written_.store(0);
  if (spent.capacity() <= kSpare) {
    spent.clear();
    writing_.swap(spent);
    return given_up;
  }
  lock.unlock();
  std::string{}.swap(spent);
  lock.lock();
  return given_up;
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
  quiet_.wait_until(lock, clock_now() + bound, [this] { return ended_; });
}

}  // namespace acc::agent
