#include "common/duration.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/timeout.hpp"

#include <unistd.h>

#include <acc/error.hpp>
#include <acc/prefetch.hpp>
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace acc::runtime {

namespace {

/// As where NCCL hangs (docs/exit-codes.md).
constexpr int kStuckStatus = 74;

}  // namespace

struct PrefetchQueue::Shared {
  struct Slot {
    bool done = false;
    std::shared_ptr<void> made;
    std::exception_ptr failure;
  };

  Make make;
  PrefetchOptions options;
  std::vector<Slot> slots;  ///< number n lies in slots[n % size]
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable made_one;  ///< for the consumer
  std::condition_variable took_one;  ///< for the producers
  std::size_t begun = 0;
  std::size_t taken = 0;
  bool ended = false;
  bool stopping = false;
  std::size_t at_work = 0;  ///< threads that haven't ended
  std::string hangs;        ///< the time-out error, once thrown
  std::chrono::nanoseconds waited{0};

  void work() {
    make_all();
    const std::scoped_lock lock{mutex};
    --at_work;
    made_one.notify_one();
  }

  void make_all() {
    std::unique_lock lock{mutex};
    for (;;) {
      took_one.wait(lock, [&] { return stopping || ended || begun < taken + slots.size(); });
      if (stopping || ended) return;
      const std::size_t number = begun++;
      lock.unlock();
      Slot result = make_one(number);
      lock.lock();
      if (!result.made && !result.failure) {
        ended = true;
        took_one.notify_all();
      }
      slots[number % slots.size()] = std::move(result);
      made_one.notify_one();
    }
  }

  void start() {
    const std::scoped_lock lock{mutex};
    workers.push_back(quiet_thread([this] { work(); }));
    ++at_work;
  }

  Slot make_one(std::size_t number) const {
    Slot result;
    result.done = true;
    try {
      result.made = make(number);
    } catch (...) {
      result.failure = std::current_exception();
    }
    return result;
  }

  Slot take() {
    std::unique_lock lock{mutex};
    auto& slot = slots[taken % slots.size()];
    const auto is_there = [&] { return slot.done; };
    if (!is_there()) {
      const auto since = std::chrono::steady_clock::now();
      if (options.timeout.count() == 0) {
        made_one.wait(lock, is_there);
      } else if (!made_one.wait_for(lock, options.timeout, is_there)) {
        hangs = options.name + ": batch " + std::to_string(taken) + " is not there after " +
                describe(options.timeout) + ": reading its samples hangs or is too slow";
        throw Error{ErrorCode::timed_out, hangs};
      }
      waited += std::chrono::steady_clock::now() - since;
    }
    hangs.clear();  // it was only slow
    // The end stays: it answers every later call too.
    if (!slot.made && !slot.failure) return slot;
    ++taken;
    took_one.notify_one();
    return std::exchange(slot, Slot{});
  }

  void stop() {
    {
      std::unique_lock lock{mutex};
      stopping = true;
      took_one.notify_all();
      const auto all_ended = [&] { return at_work == 0; };
      if (!hangs.empty() && !made_one.wait_for(lock, options.patience, all_ended)) end_process();
    }
    for (auto& worker : workers) worker.join();
  }

  // The Error in flight would never arrive: this destructor waits for the hung thread, which uses
  // the members above. A launcher can restart the process.
  [[noreturn]] void end_process() const {
    const auto line = "acc: " + hangs + ", and still does " + describe(options.patience) +
                      " later: the process ends with status " + std::to_string(kStuckStatus) + "\n";
    // write, not stdio: the hung thread may hold stderr's lock.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(kStuckStatus);
  }
};

PrefetchQueue::PrefetchQueue(Make make, PrefetchOptions options)
    : shared_{std::make_unique<Shared>()} {
  auto& shared = *shared_;
  shared.make = std::move(make);
  shared.options = std::move(options);
  auto& timeout = shared.options.timeout;
  auto& patience = shared.options.patience;
  timeout = checked_timeout(timeout, shared.options.name + ": timeout");
  patience = checked_timeout(patience, shared.options.name + ": patience");
  const std::size_t workers = shared.options.workers;
  const auto ahead = std::max<std::size_t>(shared.options.ahead, 1);
  try {
    if (workers > 0 && ahead > shared.slots.max_size() / workers) throw std::bad_alloc{};
    shared.slots.resize(workers * ahead);
  } catch (const std::bad_alloc&) {
    throw Error{ErrorCode::invalid_argument,
                shared.options.name + ": no memory for " + std::to_string(workers) +
                    " workers that each read " + std::to_string(ahead) + " batches ahead"};
  }
  try {
    for (std::size_t i = 0; i < workers; ++i) shared.start();
  } catch (const Error& failure) {
    shared.stop();
    throw Error{failure.code(), shared.options.name + ": " + std::to_string(workers) +
                                    " worker threads: " + failure.what()};
  }
}

PrefetchQueue::~PrefetchQueue() { shared_->stop(); }

std::shared_ptr<void> PrefetchQueue::next() {
  auto& shared = *shared_;
  if (shared.workers.empty()) {
    if (shared.ended) return nullptr;
    const auto since = std::chrono::steady_clock::now();
    auto made = shared.make(shared.taken++);
    shared.waited += std::chrono::steady_clock::now() - since;
    shared.ended = made == nullptr;
    return made;
  }
  auto slot = shared.take();
  if (slot.failure) std::rethrow_exception(slot.failure);
  return std::move(slot.made);
}

std::chrono::nanoseconds PrefetchQueue::waited() const noexcept { return shared_->waited; }

}  // namespace acc::runtime
