#include "runtime/net/store.hpp"

#include <acc/error.hpp>
#include <algorithm>

namespace acc::runtime {

std::string Store::get_looking(const std::string& key, Deadline deadline, const Look& look) {
  for (;;) {
    const auto slice = std::min(deadline, std::chrono::steady_clock::now() + kLookInterval);
    try {
      return get(key, slice);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timed_out) throw;
      look();
      if (slice == deadline) throw;
    }
  }
}

}  // namespace acc::runtime
