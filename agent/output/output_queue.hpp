#pragma once

#include "agent/output/drop_policy.hpp"
#include "agent/output/loss_counter.hpp"
#include "agent/output/losses.hpp"
#include "common/duration.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace acc::agent {

/// One destination of output: a bounded queue, and the thread that writes it out, where blocking is
/// fine. The loop fills the queue and never blocks. The thread starts with the first data; where
/// none can be started (EAGAIN), the data waits, and each further call tries again, once a second
/// at most. The thread shares ownership of the queue, so that one that is stuck in a write can be
/// left behind at the end of the process.
class OutputQueue : public std::enable_shared_from_this<OutputQueue> {
 public:
  virtual ~OutputQueue() = default;
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  /// "stdout", "log files in DIR".
  [[nodiscard]] const std::string& where() const { return where_; }
  /// Bytes handed in and neither written nor given up yet.
  [[nodiscard]] std::size_t queued() const { return queued_.load(std::memory_order_acquire); }
  /// When anything last left the queue.
  [[nodiscard]] Instant last_progress() const;

  // Admission, see DropPolicy. After `hold` or `drop` the queue calls `wake` when it is half empty.
  DropPolicy::Verdict ask(Instant now);
  [[nodiscard]] Instant hold_until() const { return policy_.hold_until(); }
  void reserve(std::size_t pipe_bytes) { policy_.reserve(pipe_bytes); }
  void begin_round() { policy_.begin_round(queued()); }
  void shorten_patience(Millis patience) { policy_.shorten(patience); }
  void suspend() { policy_.suspend(); }
  void resume();

  /// stuck: it has taken nothing for the patience, and there still is room.
  enum class News { none, stuck, degraded, recovered };
  /// What has changed since the last call; stuck and degraded come once.
  News news(Instant now);
  [[nodiscard]] std::optional<Losses> losses() const;
  /// For people, after News::recovered: what was lost since the last such message.
  std::string describe_recovery();
  /// For people, after News::stuck.
  [[nodiscard]] std::string describe_stuck() const;
  /// When this becomes News::stuck unless anything is taken; nothing: it is empty, full or told.
  [[nodiscard]] std::optional<Instant> stuck_at() const;

  /// Waits as long as the queue shrinks: until `patience` after its last step (but not before
  /// `from` + `patience`), and never beyond `until`. True when all that was queued has been written
  /// or given up.
  bool wait_written(Instant from, Millis patience, Instant until);
  /// Gives up what is queued and counts it as lost; what is queued later is written as usual. Waits
  /// for `bound` at most for the thread to let go of what it is writing.
  /// @param at_the_end  for the message: it moved, or had not had its whole patience
  void abandon(Millis bound, bool at_the_end);
  /// Ends the thread; leaves it behind if it doesn't end within `bound`. `wake` isn't called any
  /// more. The journal gets up to a second more to read.
  void stop(Millis bound);

 protected:
  /// @param wake  called on the writer thread when the queue is half empty after a `hold` or
  /// `drop`, and when writes begin or cease to be refused
  OutputQueue(std::string where, DropPolicy::Limits limits, std::function<void()> wake)
      : where_{std::move(where)},
        queue_bytes_{limits.queue_bytes},
        policy_{limits},
        wake_{std::move(wake)} {}

  using Origin = DropPolicy::Origin;
  using Lock = std::unique_lock<std::mutex>;

  // --- of the loop
  [[nodiscard]] bool admit(Origin origin, std::size_t bytes) {
    return policy_.admit(origin, bytes, queued());
  }
  /// `bytes` were not admitted.
  void count_dropped(std::string_view bytes) { count_lost(bytes, start_error_); }
  /// After queueing, with the lock held.
  void added(Lock& lock, std::size_t bytes);
  /// For abandon(), with the lock held: counts as dropped and forgets what the thread doesn't have
  /// yet.
  virtual void discard_queue() = 0;
  /// `bytes` are no longer in the queue, without having gone through the thread.
  void forget(std::size_t bytes) { queued_.fetch_sub(bytes); }
  /// For stop() and abandon(): ends a wait of the writer thread.
  virtual void interrupt() {}
  /// At the end of stop(), without a writer thread: waits for what the reader needs us for.
  virtual void settle() {}

  // --- of the writer thread
  /// Moves some of the queue into writing_ and writes it, without the lock while it writes, until
  /// is_cut_short(); then calls end_batch(). Called with the lock held and something queued.
  virtual void write_some(Lock& lock) = 0;
  /// stop() or abandon() was called, or the time of a write without a thread is over.
  [[nodiscard]] bool is_cut_short() const {
    return is_stopping() || abandoning_.load() || is_late();
  }
  /// With the lock held: writing_ is done, but for `rest`. True if that was given up.
  bool end_batch(Lock& lock, std::string_view rest);
  /// `bytes` have left the queue into the destination.
  void progressed(std::size_t bytes) { left_queue(bytes); }
  /// Nothing has left the queue, but the reader was seen to read.
  void saw_reader();
  /// `bytes` have left the queue and are lost.
  void lose(std::string_view bytes, int error);
  /// errno while writes are being refused; 0 once they are taken again.
  void set_refused(int error);
  [[nodiscard]] int refused() const { return refused_.load(std::memory_order_acquire); }

  /// How many lines `bytes` of the queue are, for the counts of losses. Any thread.
  [[nodiscard]] virtual std::uint64_t lines_in(std::string_view bytes) const;

  std::mutex mutex_;
  std::string writing_;                  // what the thread writes; changes only with mutex_ held
  std::atomic<std::size_t> written_{0};  // of it

 private:
  void run();
  [[nodiscard]] bool is_stopping() const { return stopping_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_late() const {
    return without_thread_until_ && clock_now() >= *without_thread_until_;
  }
  void ensure_thread();
  void start_thread();
  void wake_when_half_empty();
  void left_queue(std::size_t bytes);
  void count_lost(std::string_view bytes, int error);
  [[nodiscard]] std::string reason(int error) const;
  void call_wake();

  // of the loop
  const std::string where_;
  const std::size_t queue_bytes_;
  DropPolicy policy_;
  Instant filled_at_{};       // when the empty queue got something
  bool was_cut_off_ = false;  // by the end of the job, before the patience was over
  /// What news() has said.
  struct Told {
    bool degraded = false;
    bool stuck = false;
    bool was_losing = false;  ///< and no recovery was told since
    Instant recovery{};       ///< when one was told last
  } told_;
  Instant start_again_{};  // not before; after a failure
  int start_error_ = 0;    // errno of the last try, 0 once the thread runs
  /// No thread can be had (a process limit), and the loop itself writes what is left at the end.
  std::optional<Instant> without_thread_until_;

  // of both
  std::condition_variable work_;   // something is queued, or stop
  std::condition_variable quiet_;  // the queue is empty, or the thread has ended
  std::function<void()> wake_;     // guarded by wake_mutex_
  std::mutex wake_mutex_;
  LossCounter lost_;
  std::atomic<std::size_t> queued_{0};
  std::atomic<Instant::rep> last_progress_{0};
  std::atomic<std::size_t> wake_below_{0};  // 0: no wake-up is due; else the limit plus 1
  std::atomic<int> refused_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandoning_{false};  // writing_ is given up; set and reset with mutex_ held
  // guarded by mutex_
  bool forsaken_ = false;  // writing_ is counted as lost already, as the thread is stuck in a write
  bool started_ = false;
  bool waiting_ = false;  // the thread waits for work_
  bool ended_ = false;
};

}  // namespace acc::agent
