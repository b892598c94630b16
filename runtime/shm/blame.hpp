#pragma once

#include "runtime/shm/published.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

/// Which ranks are to blame when a call's time is up: those at the end of the chain of waiting
/// ranks.
namespace acc::runtime::shm {

/// How far a rank is.
struct RankStatus {
  enum class Source : std::uint8_t {
    rank,    ///< its own words in shared memory
    silent,  ///< it should have reported for its host, but doesn't answer
    none,    ///< unknown; see `behind`
  };
  Source source = Source::none;
  int behind = -1;  ///< the silent rank of its host, if that is why nothing is known
  bool has_joined = true;
  bool is_stopped = false;
  bool is_waiting = false;      ///< at this instant
  std::uint32_t arrived = 0;    ///< number of the last collective that it began
  std::uint32_t completed = 0;  ///< and completed
  std::array<Wait, 2> waits;    ///< those that have lasted; a send may wait beside another call
  std::string collective;       ///< in which it waits: "barrier #5"
  std::string last;             ///< "it last completed all_reduce f32 x4 sum #17"

  [[nodiscard]] bool has_arrived(std::uint32_t number) const noexcept {
    return static_cast<std::int32_t>(arrived - number) >= 0;
  }
  [[nodiscard]] bool has_completed(std::uint32_t number) const noexcept {
    return static_cast<std::int32_t>(completed - number) >= 0;
  }
};

/// The ranks that others wait for in a collective: those that have not arrived; if all have, those
/// that are stopped, or else those that have neither completed it nor wait.
[[nodiscard]] std::vector<int> late_in(std::span<const RankStatus> all, std::uint32_t number);

/// A rank that is waited for, and the one that waits for it.
struct Waited {
  int rank = 0;
  int by = -1;  ///< -1: who asks
  Wait in;      ///< the waiter's call
};

struct Blame {
  /// Ranks that don't wait for another one; if there is none, those that wait for each other.
  std::vector<Waited> culprits;
  std::vector<Waited> between;  ///< they are waited for, and wait themselves
  bool is_cycle = false;
  [[nodiscard]] std::vector<int> ranks() const;
};

/// Follows the chain from the ranks `first`, for which the asking rank waits in `mine`.
[[nodiscard]] Blame blame(std::span<const RankStatus> all, const Wait& mine,
                          const std::vector<int>& first);

/// "rank 2 (host a, pid 7) has not sent to rank 1; it last completed …; rank 1 (host a, pid 6)
/// itself waits in recv from rank 2". @param name  "rank 2 (host a, pid 7)"
[[nodiscard]] std::string describe(const Blame& found, std::span<const RankStatus> all,
                                   const std::function<std::string(int)>& name);

}  // namespace acc::runtime::shm
