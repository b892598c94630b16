#pragma once

#include "common/unique_fd.hpp"

#include <sys/stat.h>

/// What lies below an open folder, on its own mount and through no link. A user may mount a file
/// system over a folder of its own, also for root to enter (FUSE with allow_other), and that one
/// answers whenever the user likes: a root that asks it waits in the kernel. Here the kernel
/// refuses to enter it, with EXDEV, and asks nothing.
namespace acc::agent::daemon {

/// As openat(). `path` is relative, without "..". Where the kernel or a container's filter has no
/// openat2(), it is openat() with O_NOFOLLOW, and mounts are entered.
[[nodiscard]] UniqueFd open_on_mount(int folder, const char* path, int flags);
/// As fstatat() with AT_SYMLINK_NOFOLLOW, with the same exception. False: errno says why.
[[nodiscard]] bool stat_on_mount(int folder, const char* path, struct stat& info);
/// The same of what is to be removed: as root it detaches what is mounted over it, and changes
/// nothing in there.
[[nodiscard]] bool uncover_and_stat(int folder, const char* path, struct stat& info);

}  // namespace acc::agent::daemon
