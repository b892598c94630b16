#include "agent/daemon/kept_job.hpp"

namespace acc::agent::daemon {

std::int64_t wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace acc::agent::daemon
