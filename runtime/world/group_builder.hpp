#pragma once

#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/group/group.hpp"
#include "runtime/net/store.hpp"

#include <acc/process_group.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::runtime {

/// What a rank needs to form a group. All members call with the same size, key and store.
struct GroupConfig {
  int rank = 0;
  int size = 1;
  std::string key;               ///< prefix of all keys of this group; never used twice in a store
  std::shared_ptr<Store> store;  ///< nullptr: only for size 1
  GroupOptions options;        ///< as with_environment() completes them; their name is the group's
  int job_rank = -1;           ///< rank in the job; -1: no agent
  std::string agent_socket;    ///< reports lost ranks; empty: none
  std::string master_address;  ///< selects the interface to other hosts; empty: unknown
  /// The host of this rank; set by tests that simulate several hosts.
  std::optional<HostFacts> host;
  /// Of a sub-group: throws why its parent is broken, if it is. Empty: none.
  std::function<void()> check_parent;
};

/// Finds the other members through the store, chooses the backend (one host: shared memory; several
/// hosts: shared memory within and TCP between them; NCCL where requested), and makes this rank's
/// side of the group.
///
/// Each rank sends a record to rank 0 through the store; rank 0 answers with the manifest. A
/// failure of any rank is reported to all others, which fail immediately with the same error.
/// @throws Error timed_out: which ranks have joined and which haven't; peer_lost, system,
///   invalid_argument
[[nodiscard]] std::shared_ptr<Group> form_group(GroupConfig config);

}  // namespace acc::runtime
