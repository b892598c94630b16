#include "launcher/ctl/invocation.hpp"

#include <chrono>

namespace acc::ctl {

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<Millis>(now).count();
}

}  // namespace acc::ctl
