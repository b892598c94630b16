#pragma once

#include "common/unique_fd.hpp"
#include "runtime/checkpoint/file_ops.hpp"

#include <memory>

namespace acc::runtime::checkpoint {

/// One job at a time writes numbered checkpoints into a folder: two would replace and remove each
/// other's. The kernel's lock of a file `.lock` in it, which ends with the process; the file says
/// who has it, and goes with its holder. Where the file system knows no locks, the word of a
/// process that is seen to live counts. Those of one process share theirs.
class FolderLock {
 public:
  /// Again and again for the same folder: costs a system call.
  /// @throws Error invalid_argument: another job has it; says which, and what to do.
  void take(const fs::path& folder);

  struct Held;

 private:
  std::shared_ptr<Held> held_;
};

}  // namespace acc::runtime::checkpoint
