#pragma once

#include "runtime/bootstrap/member.hpp"
#include "runtime/net/store.hpp"

#include <acc/process_group.hpp>
#include <string>
#include <vector>

namespace acc::runtime {

/// The members of a group and what rank 0 decided for all of them; identical on every rank.
struct GroupManifest {
  std::string backend;  ///< "cpu", "nccl"
  bool check = true;    ///< compare the calls of the ranks?
  std::string token;    ///< random: every connection between ranks of this group presents it
  std::vector<Member> members;  ///< by rank

  /// The ranks on this rank's host, itself included, ascending.
  [[nodiscard]] std::vector<int> local_ranks(int rank) const;
  [[nodiscard]] bool one_host() const;
};

/// Values of Member::backend: what a rank requests and supports.
inline constexpr const char* kWantsCpu = "cpu";
inline constexpr const char* kWantsNccl = "nccl";
inline constexpr const char* kCanNccl = "automatic, with a device";
inline constexpr const char* kCannotNccl = "automatic, without a device";

/// Collective: announces this rank and returns the manifest that rank 0 makes of all members.
/// @param check_parties  as Gather::Options::check_parties
/// @throws Error timed_out naming the ranks that haven't joined; or the failure of another rank.
[[nodiscard]] GroupManifest gather_members(Store& store, const std::string& key, const Member& me,
                                           const GroupOptions& options, Store::Deadline deadline,
                                           std::function<void()> check_parties = {});

/// Reports to rank 0, and through it to all others, that this rank can't join.
void report_failure(Store& store, const std::string& key, const Member& me,
                    const Error& why) noexcept;

/// After a failure: acknowledges it. Rank 0 waits briefly until all ranks that joined have.
void await_readers(Store& store, const std::string& key, int rank) noexcept;

}  // namespace acc::runtime
