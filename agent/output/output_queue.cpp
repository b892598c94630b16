#include "agent/output/output_queue.hpp"

#include "common/signals_blocked.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::agent {

namespace {
constexpr std::size_t kSpare = std::size_t{512} << 10U;  // a larger buffer is given back after use
constexpr Millis kStartAgain{1000};
constexpr std::chrono::seconds kQuiet{5};  // between two messages about recoveries of one queue

Instant instant_of(const std::atomic<Instant::rep>& ticks) {
  return Instant{Instant::duration{ticks.load(std::memory_order_acquire)}};
}
}  // namespace

Instant OutputQueue::last_progress() const { return instant_of(last_progress_); }

DropPolicy::Verdict OutputQueue::ask(Instant now) {
  const auto verdict = policy_.ask(now, {queued(), last_progress()});
  if (verdict != DropPolicy::Verdict::accept) wake_when_half_empty();
  return verdict;
}

OutputQueue::News OutputQueue::news(Instant now) {
  if (policy_.is_dropping()) ask(now);  // it may have drained
  if (policy_.is_dropping() || refused() != 0) {
    told_.was_losing = true;
    return std::exchange(told_.degraded, true) ? News::none : News::degraded;
  }
  const auto stuck = stuck_at();
  if (stuck && now >= *stuck) {
    told_.stuck = true;
    return News::stuck;
  }
  if (!told_.was_losing || now < told_.recovery + kQuiet) return News::none;
  told_.was_losing = false;
  told_.recovery = now;
  return News::recovered;
}

void OutputQueue::resume() {
  policy_.resume();
  filled_at_ = clock_now();
}

std::optional<Losses> OutputQueue::losses() const {
  const auto lost = lost_.count();
  if (lost.bytes == 0 && !policy_.is_dropping()) return std::nullopt;
  Losses losses;
  losses.where = where_;
  losses.why = reason(lost.error);
  losses.reader_left = lost.error == EPIPE;
  if (lost.error == 0 && !was_cut_off_ && !policy_.is_shortened())
    losses.cure = "a longer --output_patience waits for it";
  losses.bytes = lost.bytes;
  losses.lines = lost.lines;
  losses.since = lost.since;
  losses.goes_on = policy_.is_dropping() || refused() != 0;
  return losses;
}

// A full queue holds up the workers, and what follows is degraded.
std::optional<Instant> OutputQueue::stuck_at() const {
  const auto bytes = queued();
  if (told_.stuck || told_.degraded || bytes == 0 || bytes >= queue_bytes_) return std::nullopt;
  if (policy_.is_suspended()) return std::nullopt;
  return std::max(filled_at_, last_progress()) + policy_.patience();
}

std::string OutputQueue::describe_stuck() const {
  return where_ + ": it took nothing for " + describe(policy_.patience()) +
         "; output waits in memory, and is dropped beyond " + std::to_string(queue_bytes_ >> 10U) +
         " KiB or if it is not read by the end of the job";
}

std::string OutputQueue::describe_recovery() {
  const auto lost = lost_.take_new();
  return where_ + " works again; lost meanwhile: " + plural(lost.lines, "line") + ", " +
         plural(lost.bytes, "byte") + " (" + reason(lost.error) + ")";
}

std::string OutputQueue::reason(int error) const {
  if (error == EPIPE) return "its reader went away";
  if (error != 0) return std::strerror(error);
  if (was_cut_off_) return "it had not taken all when the job ended";
  return "it took nothing for " + describe(policy_.patience()) +
         (policy_.is_shortened() ? " while the job was being stopped" : "");
}

// With the lock held. A process limit (EAGAIN) must not end the job: the queue fills, and then the
// policy decides.
void OutputQueue::ensure_thread() {
  if (started_ || clock_now() < start_again_) return;
  try {
    start_thread();
    start_error_ = 0;
  } catch (const std::system_error& failed) {
    start_error_ = failed.code().value();
    start_again_ = clock_now() + kStartAgain;
  }
}

void OutputQueue::start_thread() {
  const AllSignalsBlocked blocked;  // signals are the loop's
  // Not joined: stop() waits for `ended_`.
  std::thread{[self = shared_from_this()] { self->run(); }}.detach();
  started_ = true;
}

void OutputQueue::run() {
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

void OutputQueue::added(Lock& lock, std::size_t bytes) {
  if (queued_.fetch_add(bytes, std::memory_order_acq_rel) == 0) filled_at_ = clock_now();
  ensure_thread();
  const bool wake = waiting_;
  lock.unlock();
  if (wake) work_.notify_one();
}

void OutputQueue::left_queue(std::size_t bytes) {
  const std::size_t left = queued_.fetch_sub(bytes) - bytes;
  saw_reader();
  // Sequentially consistent with wake_when_half_empty: one of the two sides sees the other's
  // change.
  const std::size_t below = wake_below_.load();
  if (below != 0 && left < below && wake_below_.exchange(0) != 0) call_wake();
}

void OutputQueue::saw_reader() {
  last_progress_.store(clock_now().time_since_epoch().count(), std::memory_order_release);
}

void OutputQueue::lose(std::string_view bytes, int error) {
  count_lost(bytes, error);
  left_queue(bytes.size());
}

void OutputQueue::count_lost(std::string_view bytes, int error) {
  lost_.add(bytes.size(), lines_in(bytes), error);
}

std::uint64_t OutputQueue::lines_in(std::string_view bytes) const {
  return static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

void OutputQueue::set_refused(int error) {
  if (refused_.exchange(error, std::memory_order_acq_rel) != error) call_wake();
}

void OutputQueue::call_wake() {
  const std::lock_guard guard{wake_mutex_};
  if (wake_) wake_();
}

void OutputQueue::wake_when_half_empty() {
  {
    // While nothing is admitted, nothing else would try.
    const std::lock_guard guard{mutex_};
    ensure_thread();
  }
  const std::size_t bytes = queue_bytes_ / 2;
  wake_below_.store(bytes + 1);
  if (queued_.load() <= bytes && wake_below_.exchange(0) != 0)
    call_wake();  // it got there just before
}

bool OutputQueue::wait_written(Instant from, Millis patience, Instant until) {
  Lock lock{mutex_};
  while (queued() != 0 && !ended_) {
    ensure_thread();
    const Instant give_up = std::min(until, std::max(from, instant_of(last_progress_)) + patience);
    if (clock_now() >= give_up) break;
    if (started_) {
      quiet_.wait_until(lock, give_up);
    } else {  // a process limit: this thread has nothing else to do now
      without_thread_until_ = give_up;
      write_some(lock);
      without_thread_until_.reset();
    }
  }
  return queued() == 0;
}

void OutputQueue::abandon(Millis bound, bool at_the_end) {
  was_cut_off_ = was_cut_off_ || at_the_end;
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

bool OutputQueue::end_batch(Lock& lock, std::string_view rest) {
  const bool given_up = abandoning_.exchange(false) || is_late();
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

void OutputQueue::stop(Millis bound) {
  {
    const std::lock_guard guard{wake_mutex_};
    wake_ = nullptr;
  }
  Lock lock{mutex_};
  stopping_.store(true, std::memory_order_release);
  if (started_) {
    work_.notify_all();
    interrupt();
    if (!quiet_.wait_until(lock, clock_now() + bound, [this] { return ended_; })) return;
  }
  settle();  // here, not in the destructor: the thread may be the last owner, and be left behind
}

}  // namespace acc::agent
