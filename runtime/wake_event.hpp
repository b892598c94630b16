#pragma once

#include "common/kept_fd.hpp"

#include <poll.h>

#include <span>

namespace acc::runtime {

/// Wakes a thread that waits in poll(2). A program that closes its descriptors loses no file of its
/// own to them, and the thread goes on, slower: it looks around periodically. It can't know when it
/// waits for files of the program's already, so it looks around every two seconds in any case: the
/// end of a group waits for it that long, at most. (A pair of sockets: an eventfd has no inode by
/// which it could be told from another, and its end wakes nobody.)
class WakeEvent {
 public:
  /// How often a thread looks around that can't be woken any more.
  static constexpr int kLookEveryMs = 50;
  /// The longest wait of any thread.
  static constexpr int kLongestWaitMs = 2000;

  /// Check it: without descriptors it is empty, with errno set.
  WakeEvent() noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(ours_); }

  /// From any thread, and from signal handlers.
  void set() const noexcept;
  /// Readable from set() on until it is cleared; -1: the program has closed it.
  [[nodiscard]] int fd() const noexcept { return ours_.is_ours() ? ours_.get() : -1; }
  /// poll(2) with this event in `waits[0]`, which it fills and clears. For one thread. Returns 0
  /// after kLongestWaitMs, too.
  int poll(std::span<pollfd> waits, int timeout_ms) noexcept;
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }

 private:
  void clear() noexcept;

  KeptFd ours_, theirs_;  ///< to wait at; to set it by
  bool is_lost_ = false;
};

}  // namespace acc::runtime
