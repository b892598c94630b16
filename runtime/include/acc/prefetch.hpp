#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::runtime {

struct PrefetchOptions {
  unsigned workers = 0;   ///< threads; 0: the one that asks does the work
  std::size_t ahead = 2;  ///< things made before they are asked for, per worker
  std::chrono::milliseconds timeout{std::chrono::minutes{30}};  ///< of one wait; 0: none
  std::string name = "loader";                                  ///< in messages
  /// How much longer than `timeout` a call may take. It can't be interrupted, and nobody could get
  /// past it: the process ends then, with status 74.
  std::chrono::milliseconds patience{std::chrono::seconds{10}};
};

/// Makes thing 0, 1, 2, ... by several threads and hands them out in this order. Memory is bounded:
/// no more than workers * ahead are made and not taken.
class PrefetchQueue {
 public:
  /// Called by several threads at once if there are several workers. nullptr: there are no more.
  using Make = std::function<std::shared_ptr<void>(std::size_t)>;
  /// @throws Error system  threads can't be started
  PrefetchQueue(Make make, PrefetchOptions options);
  /// Waits for the calls of `make` that are under way; after a timeout, for `patience`.
  ~PrefetchQueue();
  PrefetchQueue(const PrefetchQueue&) = delete;
  PrefetchQueue& operator=(const PrefetchQueue&) = delete;

  /// The next one; nullptr: there are no more. @throws what `make` threw for it (the call after
  /// that goes on behind it), Error timed_out.
  std::shared_ptr<void> next();
  /// How long `next` has waited in all: what the reader loses by slow data.
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
