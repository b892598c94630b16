#pragma once

#include <pthread.h>
#include <signal.h>

#include <acc/error.hpp>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::runtime {

/// Starts a thread with all signals blocked: they are for the program's own threads.
/// @throws Error system: the limit of processes is reached.
template <class Work>
[[nodiscard]] std::thread quiet_thread(Work&& work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  try {
    return std::thread{std::forward<Work>(work)};  // inherits the mask
  } catch (const std::system_error& error) {
    throw Error{ErrorCode::system, "start a thread: " + error.code().message() +
                                       " (ulimit -u, or the container's limit of processes)"};
  }
}

}  // namespace acc::runtime
