#include "agent/daemon/same_mount.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace acc::agent::daemon {

namespace {

UniqueFd call_openat2(int folder, const char* path, int flags) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
  return UniqueFd{static_cast<int>(::syscall(SYS_openat2, folder, path, &how, sizeof how))};
}

// Asked once: EPERM of a later call may be the file's.
bool has_openat2() {
  static const bool kHas =
      call_openat2(AT_FDCWD, ".", O_PATH) || (errno != ENOSYS && errno != EPERM);
  return kHas;
}

}  // namespace

UniqueFd open_on_mount(int folder, const char* path, int flags) {
  if (has_openat2()) return call_openat2(folder, path, flags);
  return UniqueFd{::openat(folder, path, flags | O_NOFOLLOW | O_CLOEXEC)};
}

bool stat_on_mount(int folder, const char* path, struct stat& info) {
  if (!has_openat2()) return ::fstatat(folder, path, &info, AT_SYMLINK_NOFOLLOW) == 0;
  const UniqueFd fd = call_openat2(folder, path, O_PATH);
  return fd && ::fstat(fd.get(), &info) == 0;
}

bool uncover_and_stat(int folder, const char* path, struct stat& info) {
  constexpr int kMostMounts = 100;  // one over the other
  const std::string name = "/proc/self/fd/" + std::to_string(folder) + '/' + path;
  for (int i = 0; i < kMostMounts; ++i) {
    if (stat_on_mount(folder, path, info)) return true;
    if (errno != EXDEV) return false;
    if (::umount2(name.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) break;
  }
  errno = EXDEV;
  return false;
}

}  // namespace acc::agent::daemon
