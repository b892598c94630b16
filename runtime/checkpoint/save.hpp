#pragma once

#include "runtime/checkpoint/file_ops.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/folder_lock.hpp"
#include "runtime/checkpoint/host_state.hpp"
#include "runtime/checkpoint/known_checkpoints.hpp"

#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <cstdint>
#include <optional>

namespace acc::runtime::checkpoint {

struct SavePlan {
  fs::path target;  ///< absolute
  std::uint64_t number = 0;
  std::uint64_t max_shard_bytes = 0;
  int threads = 1;
  Removal removal;
  FolderLock* lock = nullptr;  ///< of the folder; nullptr: a checkpoint that stands by itself
  KnownCheckpoints* known =
      nullptr;  ///< of a numbered one: others' are neither replaced nor removed
};

/// Collective. Every rank writes its part to a temporary folder; rank 0 writes the manifest and
/// moves the folder to its name.
/// @param failure  why this rank has no state: no checkpoint is made on any rank.
/// @throws Error  the error of the first failing rank, the same on all; or an error of the group.
void save(ProcessGroup& group, FileOps& files, const SavePlan& plan, const HostState& state,
          const std::optional<Error>& failure, const Tell& tell);

}  // namespace acc::runtime::checkpoint
