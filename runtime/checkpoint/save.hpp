#pragma once

#include "runtime/checkpoint/file_ops.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/folder_lock.hpp"
#include "runtime/checkpoint/host_state.hpp"

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
};

/// Collective. Every rank writes its part into a temporary folder, rank 0 the manifest, and puts
/// it in its place.
/// @param failure  this rank has no state to give: no rank gets its checkpoint.
/// @throws Error  on all ranks alike what the first failing rank met; or what the group met.
void save(ProcessGroup& group, FileOps& files, const SavePlan& plan, const HostState& state,
          const std::optional<Error>& failure, const Tell& tell);

}  // namespace acc::runtime::checkpoint
