#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::runtime {

struct PrefetchOptions {
  unsigned workers = 0;   ///< threads; 0: the calling thread does the work
  std::size_t ahead = 2;  ///< items made ahead, per worker
  std::chrono::milliseconds timeout{std::chrono::minutes{30}};  ///< of one wait; 0: none
  std::string name = "loader";                                  ///< in messages
  /// How much longer than `timeout` a call may take. It can't be interrupted or bypassed: then the
  /// process ends, with status 74.
  std::chrono::milliseconds patience{std::chrono::seconds{10}};
};

/// Makes items 0, 1, 2, ... in several threads and returns them in this order. Memory is bounded:
/// at most workers * ahead items are waiting.
class PrefetchQueue {
 public:
  /// Called concurrently by several threads if there are several workers. nullptr: there are no
  /// more.
  using Make = std::function<std::shared_ptr<void>(std::size_t)>;
  /// @throws Error system  threads can't be started
  PrefetchQueue(Make make, PrefetchOptions options);
  /// Waits for the running calls of `make`; after a timeout, for `patience`.
  ~PrefetchQueue();
  PrefetchQueue(const PrefetchQueue&) = delete;
  PrefetchQueue& operator=(const PrefetchQueue&) = delete;

  /// The next one; nullptr: there are no more. @throws what `make` threw for it (the next call
  /// continues after it), Error timed_out.
  std::shared_ptr<void> next();
  /// Total time that `next` has waited for slow data.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

template <class T>
class Prefetcher {
 public:
  Prefetcher(std::function<std::optional<T>(std::size_t)> make, PrefetchOptions options)
      : queue_{[make = std::move(make)](std::size_t number) -> std::shared_ptr<void> {
                 auto made = make(number);
                 return made ? std::make_shared<T>(*std::move(made)) : nullptr;
               },
               std::move(options)} {}
  std::optional<T> next() {
    const auto made = queue_.next();
    if (!made) return std::nullopt;
    return std::move(*static_cast<T*>(made.get()));
  }
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return queue_.waited(); }

 private:
  PrefetchQueue queue_;
};

}  // namespace acc::runtime
