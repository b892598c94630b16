#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace acc::runtime {

/// A thread that takes no signals: they are for the program's own threads.
template <class Work>
[[nodiscard]] std::thread quiet_thread(Work&& work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  return std::thread{std::forward<Work>(work)};  // inherits the mask
}

}  // namespace acc::runtime
