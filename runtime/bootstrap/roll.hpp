#pragma once

#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/store.hpp"

#include <acc/process_group.hpp>
#include <string>
#include <vector>

namespace acc::runtime {

/// Who is in a group and what was decided for all of them: rank 0's, the same on every rank.
struct Roll {
  std::string backend;          ///< "cpu", "nccl"
  bool check = true;            ///< compare the calls of the ranks?
  std::string token;            ///< random: connections of this group's ranks name it
  std::vector<Member> members;  ///< by rank

  /// Ranks with this rank's host, itself included, in their order.
  [[nodiscard]] std::vector<int> local_ranks(int rank) const;
  [[nodiscard]] bool one_host() const;
};

/// What a rank can do and wishes: Member::backend.
inline constexpr const char* kWantsCpu = "cpu";
inline constexpr const char* kWantsNccl = "nccl";
inline constexpr const char* kCanNccl = "automatic, with a device";
inline constexpr const char* kCannotNccl = "automatic, without a device";

/// Writes this rank's letter, and waits for all others' (rank 0) or for the roll.
/// @throws Error timed_out with who hasn't joined, or what failed on another rank.
[[nodiscard]] Roll call_the_roll(Store& store, const std::string& key, const Member& me,
                                 const GroupOptions& options, Store::Deadline deadline);

/// Tells rank 0, and so all others, that this rank can't take part.
void excuse(Store& store, const std::string& key, const Member& me, const Error& why) noexcept;

/// After a failure: each rank says that it knows. Rank 0 waits, not long, until all that joined
/// did.
void take_leave(Store& store, const std::string& key, int rank) noexcept;

}  // namespace acc::runtime
