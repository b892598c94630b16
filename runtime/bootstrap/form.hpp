#pragma once

#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/store.hpp"
#include "runtime/group/group.hpp"

#include <acc/process_group.hpp>
#include <memory>
#include <optional>
#include <string>

namespace acc::runtime {

/// What a rank brings along to form a group. All members call at about the same time, with the same
/// size, key and store.
struct Formation {
  int rank = 0;
  int size = 1;
  std::string key;               ///< prefix of all keys of this group; never used twice in a store
  std::shared_ptr<Store> store;  ///< nullptr: only for size 1
  GroupOptions options;        ///< as with_environment() completes them; their name is the group's
  int job_rank = -1;           ///< as our agent counts; -1: no agent of ours
  std::string agent_socket;    ///< tells of lost ranks; empty: none
  std::string master_address;  ///< other hosts are reached on the way to it; empty: not known
  /// Where this rank is; tests say it to play several hosts on one.
  std::optional<HostFacts> host;
};

/// Finds the other members through the store, chooses what carries the bytes (threads and processes
/// of one host: shared memory; several hosts: shared memory within and TCP between them; NCCL where
/// it was asked for), and makes this rank's side of the group.
///
/// Through the store go: one letter of each rank to rank 0, and the roll that rank 0 writes when
/// all have come. Whatever fails on a rank meanwhile is told to all the others, which then fail at
/// once with the same error.
/// @throws Error timed_out: who hasn't joined and who has; peer_lost, system, invalid_argument
[[nodiscard]] std::shared_ptr<Group> form_group(Formation formation);

}  // namespace acc::runtime
