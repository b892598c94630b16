#pragma once

#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace acc::agent::daemon {

/// Which of a rank's log files: each attempt of each run of a job has one. It names no path, so
/// that a client's can lead to no other file.
struct LogPlace {
  std::int64_t time_ms = 0;  ///< when one of the run's attempts began: later runs follow
  std::uint64_t run = 0;     ///< fnv1a() of the name of the run's folder
  std::uint32_t attempt = 0;
  friend bool operator==(const LogPlace&, const LogPlace&) = default;
};

/// Of what isn't a rank's both are nothing.
[[nodiscard]] inline bool is_same_attempt(const std::optional<LogPlace>& a,
                                          const std::optional<LogPlace>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->run == b->run && a->attempt == b->attempt;
}

struct RankLogChoice {
  std::uint32_t local_rank = 0;
  bool is_stderr = false;
  std::optional<LogPlace> from{};  ///< the first file from there on; nothing: the newest attempt's
  ino_t read = 0;                  ///< this file was read: one after it, if there is one
};

struct RankLog {
  UniqueFd fd{};     ///< empty: there is none yet
  LogPlace place{};  ///< of the file, or how far was looked: go on from there
};

}  // namespace acc::agent::daemon
