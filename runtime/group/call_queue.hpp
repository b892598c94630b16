#pragma once

#include "runtime/backend.hpp"
#include "runtime/fork.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace acc::runtime {

/// State of a call that was started, shared by its handles.
struct Work::State {
  Call call;
  std::vector<std::size_t> counts;   // of a _v form, of both sides: the call points here
  bool collected = false;            // by coalesce, not launched yet
  SharedBuffer* buffer = nullptr;    // of allocate, whose caller waits
  std::uint64_t ticket = 0;          // of the flight recorder
  std::shared_ptr<Pending> pending;  // of an asynchronous backend; then nothing below is used
  std::uint64_t begun_in = fork_generation();

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> done{false};  // written under the mutex
  std::exception_ptr error;       // set before done

  /// Of a call that outlives its caller's counts.
  void take(const Call& from);
  void finish(std::exception_ptr failure);
};

/// Carries out calls in order, on a thread started by the first one.
class CallQueue {
 public:
  using Job = std::shared_ptr<Work::State>;
  /// @param carry_out  carries out one call on the queue's thread; what it throws becomes the
  ///   work's error
  CallQueue(std::string thread_name, std::function<void(Work::State&)> carry_out);
  ~CallQueue();  ///< waits for all calls started
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// No call is waiting or running, and the effects of the queue's thread are visible to the
  /// caller.
  [[nodiscard]] bool idle() const noexcept {
    return unfinished_.load(std::memory_order_acquire) == 0;
  }
  /// @throws std::runtime_error  the queue's thread can't be started
  void push(Job job);

 private:
  void work();

  const std::string thread_name_;
  const std::function<void(Work::State&)> carry_out_;
  std::atomic<std::size_t> unfinished_{0};
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Job> jobs_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace acc::runtime
