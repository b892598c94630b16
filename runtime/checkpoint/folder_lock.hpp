#pragma once

#include "common/unique_fd.hpp"
#include "runtime/checkpoint/file_ops.hpp"
#include "runtime/checkpoint/folder.hpp"

#include <memory>

namespace acc::runtime::checkpoint {

/// Ensures that one job at a time writes numbered checkpoints to a folder: two would replace and
/// remove each other's. A kernel lock on the file `.lock` in it, which ends with the process; the
/// file names its holder, and is removed by it. Only a user who may write to the file can take it.
/// On a file system without locks the file counts as long as its process is alive, which is
/// reported. Locks within a process are shared.
class FolderLock {
 public:
  /// Repeated for the same folder it costs a few system calls.
  /// @return may another have written to the folder since this object's last call? No: it has held
  ///   the lock all the time, alone, and its signature is still in the file.
  /// @param tell  called once for each folder that can't be locked.
  /// @throws Error invalid_argument: another job holds it; says which, and what to do. system:
  ///   `.lock` is no file that can be locked.
  bool take(
      const fs::path& folder, const Tell& tell = [](const std::string&) {},
      FileOps& files = FileOps::real());
  /// Of this object; others of this process keep theirs.
  void release() noexcept { held_.reset(); }

  struct Held;

 private:
  std::shared_ptr<Held> held_;
};

}  // namespace acc::runtime::checkpoint
