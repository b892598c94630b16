#include "common/duration.hpp"

#include <acc/error.hpp>
#include <acc/prefetch.hpp>
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace acc::runtime {

namespace {

/// A thread with all signals blocked: they are the program's, whose handlers don't expect us.
std::thread start_quietly(auto&& body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread{std::forward<decltype(body)>(body)};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

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
  std::condition_variable made_one;  ///< for who takes
  std::condition_variable took_one;  ///< for who makes
  std::size_t begun = 0;
  std::size_t taken = 0;
  bool ended = false;
  bool stopping = false;
  std::chrono::nanoseconds waited{0};

  void work() {
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
        throw Error{ErrorCode::timed_out, options.name + ": batch " + std::to_string(taken) +
                                              " is not there after " + describe(options.timeout) +
                                              ": reading its samples hangs or is too slow"};
      }
      waited += std::chrono::steady_clock::now() - since;
    }
    // The end is never taken away: it answers every later call too.
    if (!slot.made && !slot.failure) return slot;
    ++taken;
    took_one.notify_one();
    return std::exchange(slot, Slot{});
  }

  void stop() {
    {
      const std::scoped_lock lock{mutex};
      stopping = true;
    }
    took_one.notify_all();
    for (auto& worker : workers) worker.join();
  }
};

PrefetchQueue::PrefetchQueue(Make make, PrefetchOptions options)
    : shared_{std::make_unique<Shared>()} {
  auto& shared = *shared_;
  shared.make = std::move(make);
  shared.options = std::move(options);
  const std::size_t workers = shared.options.workers;
  shared.slots.resize(workers * std::max<std::size_t>(shared.options.ahead, 1));
  try {
    for (std::size_t i = 0; i < workers; ++i)
      shared.workers.push_back(start_quietly([&shared] { shared.work(); }));
  } catch (const std::system_error& failure) {
    shared.stop();
    throw Error{ErrorCode::system, shared.options.name + ": start " + std::to_string(workers) +
                                       " worker threads: " + failure.code().message()};
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
