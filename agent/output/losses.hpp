#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <string>

namespace acc::agent {

/// What one destination of output did not take.
struct Losses {
  std::string where;  ///< "stdout", "stderr", "log files in DIR"
  std::string why;    ///< "No space left on device", "its reader went away"
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  Instant since{};           ///< of the first loss
  std::string cure{};        ///< what to do about it; may be empty
  bool reader_left = false;  ///< nothing reads it any more: `| head`
  bool goes_on = false;      ///< it takes nothing at present
};

}  // namespace acc::agent
