#pragma once

#include "common/duration.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace acc::agent {

struct LossCount {
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  Instant since{};
  int error = 0;  ///< errno of the last refused write; 0: the sink was too slow
};

/// A queue and the thread that writes it out, where blocking is fine. The thread starts with the
/// first data; where none can be started (EAGAIN), the data waits, and each further call tries
/// again, once a second at most. The thread shares ownership of the object, so that one that is
/// stuck in a write can be left behind at the end of the process.
class Sink : public std::enable_shared_from_this<Sink> {
 public:
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // --- for the loop
  /// Bytes handed in and neither written nor given up yet.
  [[nodiscard]] std::size_t queued() const { return queued_.load(std::memory_order_acquire); }
  /// When anything last left the queue.
  [[nodiscard]] Instant last_progress() const;
  /// Calls `wake` (on the writer thread) once, as soon as no more than `bytes` are queued.
  void wake_when_below(std::size_t bytes);
  /// `bytes` were not even queued, as the sink is too slow.
  void count_dropped(std::string_view bytes);
  [[nodiscard]] LossCount lost() const;
  /// errno while writes are being refused; 0 once they are taken again.
  [[nodiscard]] int refused() const { return refused_.load(std::memory_order_acquire); }
  /// Waits as long as the queue shrinks: until `patience` after its last step (but not before
  /// `from` + `patience`), and never beyond `until`. True when all that was queued has been written
  /// or given up.
  bool wait_written(Instant from, Millis patience, Instant until);
  /// Gives up what is queued and counts it as lost; what comes later is written as usual. Waits for
  /// `bound` at most for the thread to let go of what it is writing.
  void abandon(Millis bound);
  /// Ends the thread; leaves it behind if it doesn't end within `bound`. `wake` isn't called any
  /// more.
  void stop(Millis bound);

 protected:
  /// @param wake  called when a wake_when_below comes true, and when refused() changes
  explicit Sink(std::function<void()> wake) : wake_{std::move(wake)} {}

  using Lock = std::unique_lock<std::mutex>;
  /// After queueing, with the lock held.
  void added(Lock& lock, std::size_t bytes);
  /// Thread: moves some of the queue into writing_ and writes it, without the lock while it writes,
  /// until is_cut_short(); then calls end_batch(). Called with the lock held and something queued.
  virtual void write_some(Lock& lock) = 0;
  /// Thread: stop() or abandon() was called.
  [[nodiscard]] bool is_cut_short() const { return is_stopping() || abandoning_.load(); }
  /// Thread, with the lock held: writing_ is done, but for `rest`. True if that was given up.
  bool end_batch(Lock& lock, std::string_view rest);
  /// For abandon(), with the lock held: counts as dropped and forgets what the thread doesn't have
  /// yet.
  virtual void discard_queue() = 0;
  /// `bytes` are no longer in the queue, without having gone through the thread.
  void forget(std::size_t bytes) { queued_.fetch_sub(bytes); }
  /// Thread: `bytes` have left the queue into the target.
  void progressed(std::size_t bytes) { left_queue(bytes); }
  /// Thread: nothing has left the queue, but the reader was seen to read.
  void saw_reader();
  /// Thread: `bytes` have left the queue and are lost.
  void lose(std::string_view bytes, int error);
  void set_refused(int error);
  /// How many lines `bytes` of the queue are, for the counts of losses.
  [[nodiscard]] virtual std::uint64_t lines_in(std::string_view bytes) const;
  /// Called by stop() and abandon(), on the loop's thread: ends a wait of the writer thread.
  virtual void interrupt() {}
  [[nodiscard]] bool is_stopping() const { return stopping_.load(std::memory_order_acquire); }

  std::mutex mutex_;
  std::string writing_;                  // what the thread writes; changes only with mutex_ held
  std::atomic<std::size_t> written_{0};  // of it

 private:
  void run();
  void ensure_thread();
  void start_thread();
  void left_queue(std::size_t bytes);
  void count_lost(std::string_view bytes, int error);
  void call_wake();

  std::condition_variable work_;   // something is queued, or stop
  std::condition_variable quiet_;  // the queue is empty, or the thread has ended
  std::function<void()> wake_;     // guarded by wake_mutex_
  std::mutex wake_mutex_;
  mutable std::mutex loss_mutex_;
  LossCount lost_;
  std::atomic<std::size_t> queued_{0};
  std::atomic<Instant::rep> last_progress_{0};
  std::atomic<std::size_t> wake_below_{0};  // 0: nobody waits; else the limit plus 1
  std::atomic<int> refused_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandoning_{false};  // writing_ is given up; set and reset with mutex_ held
  bool forsaken_ = false;  // it is counted as lost already, as the thread doesn't come back
  bool started_ = false;
  Instant start_again_{};  // not before; after a failure
  int start_error_ = 0;    // of the loop: errno of the last try, 0 once the thread runs
  bool waiting_ = false;   // the thread waits for work_
  bool ended_ = false;
};

}  // namespace acc::agent
