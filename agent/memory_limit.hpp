#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// Distinguishes an out-of-memory kill from another SIGKILL by the counter of the memory cgroup in
/// which the workers are created.
namespace acc::agent {

struct MemoryFacts {
  std::optional<std::uint64_t> oom_kills;    ///< so far in this cgroup
  std::optional<std::uint64_t> limit_bytes;  ///< none: unlimited or unknown
  std::optional<std::uint64_t> peak_bytes;
};

/// What the machine and this process's memory cgroup still have to give; 0: unknown.
[[nodiscard]] std::uint64_t free_memory_bytes();

class MemoryWatch {
 public:
  /// The first time it finds the cgroup (v2's memory.events or v1's memory.oom_control). Without
  /// one everything stays empty.
  void find();
  /// Out-of-memory kills so far.
  [[nodiscard]] std::optional<std::uint64_t> kills() const;
  [[nodiscard]] MemoryFacts now() const;

 private:
  bool looked_ = false;
  std::string folder_;
  bool is_v2_ = false;
};

}  // namespace acc::agent
