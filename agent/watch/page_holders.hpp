#pragma once

#include "common/heartbeat_slot.hpp"
#include "common/ids.hpp"

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace acc::agent {

/// Finds programs that had the page of a worker and have ended, while the worker lives: it is a
/// script that runs several, one after the other.
class PageHolders {
 public:
  void begin_round(std::uint32_t workers) { known_.assign(workers, {}); }
  /// Once for each program. The pid on a page is one of ours only if it was seen alive among the
  /// worker's descendants, or the worker is in our namespace of pids: that of a process in a
  /// container has another number there.
  [[nodiscard]] bool has_ended(LocalRank worker, const heartbeat::Beat& beat, pid_t worker_pid);

 private:
  struct Holder {
    std::uint32_t pid = 0;
    std::uint64_t start_time = 0;  ///< 0: it wasn't found
    std::uint64_t time_ns = 0;     ///< of its last sign of life
  };
  std::vector<Holder> known_;
};

}  // namespace acc::agent
