#pragma once

#include "common/signals_blocked.hpp"

#include <acc/error.hpp>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::runtime {

/// Starts a thread with all signals blocked: they are for the program's own threads.
/// @throws Error system: the limit of processes is reached.
template <class Work>
[[nodiscard]] std::thread quiet_thread(Work&& work) {
  const AllSignalsBlocked blocked;
  try {
    return std::thread{std::forward<Work>(work)};
  } catch (const std::system_error& error) {
    throw Error{ErrorCode::system, "start a thread: " + error.code().message() +
                                       " (ulimit -u, or the container's limit of processes)"};
  }
}

}  // namespace acc::runtime
