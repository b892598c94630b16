#pragma once

#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>

namespace acc::agent::evidence {

struct StacksMemory {
  UniqueFd file;               ///< for reading and writing; empty: there is none that can be opened
  bool is_other_file = false;  ///< the descriptor is there, and is of something else
  int error = 0;  ///< errno: what it is can't be seen, for want of descriptors or memory
};

/// The memory (memfd_create) into which a process's Python handler writes its stacks, by the
/// descriptor that the process names. A process that closed what it doesn't know (os.closerange)
/// may have a file of its own there, and a hostile one names any file under any path, in a mount
/// namespace of its own: what isn't such memory is neither opened nor changed.
[[nodiscard]] StacksMemory open_stacks_memory(pid_t pid, std::uint32_t descriptor);

}  // namespace acc::agent::evidence
