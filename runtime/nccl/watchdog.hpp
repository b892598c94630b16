#pragma once

#include <acc/error.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace acc::runtime::nccl {

/// What the watchdog looks after. Each of the three is called on a thread of its own, for one after
/// the other; none of them throws.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Asks CUDA and NCCL how far they are, and keeps the answers. It may hang, as CUDA may.
  virtual void probe() noexcept = 0;
  /// Speaks with the other ranks through the store. It may take a while, as a network may.
  /// @return when it wants to speak again at the latest
  virtual std::chrono::steady_clock::time_point talk() noexcept = 0;
  /// Judges by the clock and by what the other two have found; never waits for anything.
  /// @return when it wants to be asked again at the latest
  virtual std::chrono::steady_clock::time_point judge() noexcept = 0;
  [[nodiscard]] virtual int device() const noexcept = 0;
  /// Another communicator on the same device was broken, and is being aborted.
  virtual void neighbour_broke(const Error& cause) noexcept = 0;
};

/// One for all communicators of the process. Its judge never calls CUDA, NCCL or the store, so that
/// a driver that hangs is found out by the same thread and not by a watchdog of the watchdog: a
/// probe that doesn't come back is one more thing that it sees.
class Watchdog {
 public:
  static constexpr std::chrono::milliseconds kPeriod{100};

  static Watchdog& instance();

  void add(std::shared_ptr<Watched> watched);
  /// A call into it may still run; it keeps what it uses.
  void remove(const Watched& watched) noexcept;
  /// Something has happened: judge and talk at once.
  void wake() noexcept;
  /// Breaks what else uses the device: communicators of one device that are aborted one after the
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
