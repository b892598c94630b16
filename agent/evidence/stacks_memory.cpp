#include "agent/evidence/stacks_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace acc::agent::evidence {

namespace {

std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

/// On the kernel's own mount of such memory, which no process can mount or name files on. A path
/// proves nothing: it is relative to the mount namespace of the process that opened the file.
bool is_memory(int fd, const UniqueFd& ours) {
  struct statfs system {};
  struct stat facts {};
  struct stat expected {};
  return ::fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
         ::fstat(ours.get(), &expected) == 0 && ::fstat(fd, &facts) == 0 &&
         facts.st_dev == expected.st_dev && facts.st_nlink == 0 && S_ISREG(facts.st_mode);
}

/// Of memory alone: its maker chose the name once and for all. Its owner says less, as a worker may
/// change its user after its first heartbeat.
bool has_name_of_stacks(int fd) {
  char name[64];
  const auto n = ::readlink(path_of(fd).c_str(), name, sizeof name);
  constexpr std::string_view kName = "/memfd:acc-stacks";
  return n > 0 && std::string_view{name, static_cast<std::size_t>(n)}.starts_with(kName);
}

}  // namespace

StacksMemory open_stacks_memory(pid_t pid, std::uint32_t descriptor) {
  const auto path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  // What is judged is what is opened, and judging it doesn't open a device or a pipe.
  const UniqueFd found{::open(path.c_str(), O_PATH | O_CLOEXEC)};
  if (!found) return {{}, false, is_shortage(errno) ? errno : 0};
  const UniqueFd compared{::memfd_create("acc-compared", MFD_CLOEXEC)};
  if (!compared) return {{}, false, errno};
  if (!is_memory(found.get(), compared) || !has_name_of_stacks(found.get())) return {{}, true};
  UniqueFd file{::open(path_of(found.get()).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)};
  const int error = !file && is_shortage(errno) ? errno : 0;
  return {std::move(file), false, error};
}

}  // namespace acc::agent::evidence
