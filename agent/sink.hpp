#pragma once

#include "common/duration.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

namespace acc::agent {

struct LossCount {
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  Instant since{};
  int error = 0;  ///< errno of the last refused write; 0: the sink was too slow
};

/// A queue and the thread that writes it out, where blocking is fine. The thread starts with the
/// first data. It shares ownership of the object, so that one that is stuck in a write can be left
/// behind at the end of the process.
class Sink : public std::enable_shared_from_this<Sink> {
 public:
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // --- for the loop
  /// Bytes handed in and neither written nor given up yet.
  [[nodiscard]] std::size_t queued() const { return queued_.load(std::memory_order_acquire); }
  [[nodiscard]] Instant last_progress() const;
  /// Calls `wake` (on the writer thread) once, as soon as no more than `bytes` are queued.
  void wake_when_below(std::size_t bytes);
  /// `bytes` were not even queued, as the sink is too slow.
  void count_dropped(std::string_view bytes);
  [[nodiscard]] LossCount lost() const;
  /// errno while writes are being refused; 0 once they are taken again.
  [[nodiscard]] int refused() const { return refused_.load(std::memory_order_acquire); }
  /// True when all that was queued has been written or given up before `deadline`.
  bool wait_written(Instant deadline);
  /// Ends the thread; leaves it behind if it doesn't end within `bound`. `wake` isn't called any
  /// more.
  void stop(Millis bound);

 protected:
  /// @param wake  called when a wake_when_below comes true, and when refused() changes
  explicit Sink(std::function<void()> wake) : wake_{std::move(wake)} {}

  using Lock = std::unique_lock<std::mutex>;
  /// After queueing, with the lock held.
  void added(Lock& lock, std::size_t bytes);
  /// Thread: writes what is queued, without the lock while it writes. Called with the lock held and
  /// something queued.
  virtual void write_some(Lock& lock) = 0;
  /// Thread: `bytes` have left the queue into the target.
  void progressed(std::size_t bytes);
  /// Thread: `bytes` have left the queue and are lost.
  void lose(std::string_view bytes, int error);
  /// Thread: `bytes` have left the queue and nobody wants them.
  void discarded(std::size_t bytes) { progressed(bytes); }
  void set_refused(int error);
  /// How many lines `bytes` of the queue are, for the counts of losses.
  [[nodiscard]] virtual std::uint64_t lines_in(std::string_view bytes) const;
  /// Called by stop(), on the loop's thread: ends a wait of the writer thread.
  virtual void interrupt() {}
  [[nodiscard]] bool is_stopping() const { return stopping_.load(std::memory_order_acquire); }

  std::mutex mutex_;

 private:
  void run();
  void start_thread();
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
  std::size_t since_progress_ = 0;          // thread only
  std::atomic<int> refused_{0};
  std::atomic<bool> stopping_{false};
  bool started_ = false;
  bool waiting_ = false;  // the thread waits for work_
  bool ended_ = false;
};

}  // namespace acc::agent
