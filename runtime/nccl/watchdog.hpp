#pragma once

#include <acc/error.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace acc::runtime::nccl {

/// What the watchdog supervises. Each of the three functions is called on its own thread, for one
/// object after the other; none throws.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Queries the progress of CUDA and NCCL, and keeps the results. May hang, as CUDA may.
  virtual void probe() noexcept = 0;
  /// Communicates with the other ranks through the store. May take a while, as a network may.
  /// @return when to call it again at the latest
  virtual std::chrono::steady_clock::time_point talk() noexcept = 0;
  /// Decides by the clock and the results of the other two; never blocks.
  /// @return when to call it again at the latest
  virtual std::chrono::steady_clock::time_point judge() noexcept = 0;
  [[nodiscard]] virtual int device() const noexcept = 0;
  /// Another communicator on the same device was broken, and is being aborted.
  virtual void neighbour_broke(const Error& cause) noexcept = 0;
};

/// The watchdog of all communicators of the process. Its judge never calls CUDA, NCCL or the store,
/// so it also detects a hung driver, as a probe that doesn't return; no watchdog of the watchdog is
/// needed.
class Watchdog {
 public:
  static constexpr std::chrono::milliseconds kPeriod{100};

  static Watchdog& instance();

  void add(std::shared_ptr<Watched> watched);
  /// A call on it may still be running; it keeps what it uses.
  void remove(const Watched& watched) noexcept;
  /// Something has happened: runs judge and talker immediately.
  void wake() noexcept;
  /// Breaks all else on the device: communicators of one device that are aborted one after the
  /// other hang in each other's kernels (NVIDIA/nccl #992).
  void spread(const Watched& broken, const Error& cause) noexcept;

 private:
  Watchdog();
  void probing();
  void talking();
  void judging();
  /// Waits for the period, for wake() or `until`, and while there is nothing to watch.
  std::vector<std::shared_ptr<Watched>> next_round(std::chrono::steady_clock::time_point until,
                                                   std::uint64_t* seen);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t wakes_ = 0;
  std::vector<std::shared_ptr<Watched>> watched_;
};

}  // namespace acc::runtime::nccl
