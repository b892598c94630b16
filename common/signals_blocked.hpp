#pragma once

#include <pthread.h>
#include <signal.h>

namespace acc {

/// Blocks all signals in the calling thread for as long as it lives. A thread or a process that is
/// made meanwhile begins with all of them blocked, so no handler runs there, not even at first.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace acc
