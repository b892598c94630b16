#include "agent/daemon/folder_tree.hpp"

#include "common/random.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace acc::agent::daemon {

namespace {

constexpr int kTreeFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
// Below it a folder is moved up to the top and emptied there.
constexpr int kDeepest = 32;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

Folder open_tree_folder(int parent, const char* name) {
  UniqueFd fd{::openat(parent, name, kTreeFlags)};
  Folder folder{fd ? ::fdopendir(fd.get()) : nullptr};
  if (folder) (void)fd.release();
  return folder;
}

bool is_dots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

class Remover {
 public:
  Remover(int top, dev_t device) : top_{top}, device_{device} {}

  // Empties the folder; true if it found nothing that has to be visited again.
  bool empty(DIR* folder, int depth) {
    bool is_empty = true;
    const int fd = ::dirfd(folder);
    while (const dirent* entry = ::readdir(folder)) {
      if (is_dots(entry->d_name)) continue;
      if (::unlinkat(fd, entry->d_name, 0) == 0) continue;
      if (errno != EISDIR && errno != EPERM && errno != EBUSY) {
        if (errno != ENOENT) note(entry->d_name);
        continue;
      }
      if (!remove_folder(fd, entry->d_name, depth)) is_empty = false;
    }
    return is_empty;
  }

  [[nodiscard]] int errnum() const { return errnum_; }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  bool remove_folder(int parent, const char* name, int depth) {
    if (::unlinkat(parent, name, AT_REMOVEDIR) == 0) return true;
    struct stat info {};
    if (::fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
    if (!S_ISDIR(info.st_mode) || info.st_dev != device_) {
      note(name);
      return true;
    }
    if (depth >= kDeepest) {
      const std::string up = ".deep-" + random_name();
      if (::renameat(parent, name, top_, up.c_str()) != 0) note(name);
      return false;
    }
    bool is_empty = true;
    {
      Folder folder = open_tree_folder(parent, name);
      if (!folder && errno == EACCES && ::geteuid() != 0) {  // as root a link would be followed
        ::fchmodat(parent, name, 0700, 0);
        folder = open_tree_folder(parent, name);
      }
      if (!folder) {
        note(name);
        return true;
      }
      is_empty = empty(folder.get(), depth + 1);
    }
    if (::unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT && is_empty) note(name);
    return is_empty;
  }

  void note(const char* name) {
    if (errnum_ == 0) where_ = printable(name);
    errnum_ = errno == 0 ? EXDEV : errno;
  }

  int top_;
  dev_t device_;
  int errnum_ = 0;
  std::string where_;
};

void add_bytes(int parent, const char* name, dev_t device, int depth, std::uint64_t& bytes,
               std::uint64_t& files) {
  constexpr std::uint64_t kMost = 200'000;
  const Folder folder = open_tree_folder(parent, name);
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (is_dots(entry->d_name)) continue;
    if (++files > kMost) return;
    struct stat info {};
    if (::fstatat(::dirfd(folder.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    constexpr std::uint64_t kBlock = 512;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * kBlock;
    if (S_ISDIR(info.st_mode) && info.st_dev == device && depth < kDeepest)
      add_bytes(::dirfd(folder.get()), entry->d_name, device, depth + 1, bytes, files);
  }
}

}  // namespace

Result<void> remove_tree(int parent, const std::string& name) {
  struct stat info {};
  if (::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return system_error(errno, "remove '" + name + "'");
  }
  if (!S_ISDIR(info.st_mode)) {
    if (::unlinkat(parent, name.c_str(), 0) == 0) return {};
    return system_error(errno, "remove '" + name + "'");
  }
  // Each pass takes what the one before moved up; a user that makes more meanwhile isn't followed
  // for ever.
  constexpr int kPasses = 1000;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Folder folder = open_tree_folder(parent, name.c_str());
    if (!folder) return system_error(errno, "remove '" + name + "'");
    Remover remover{::dirfd(folder.get()), info.st_dev};
    const bool is_empty = remover.empty(folder.get(), 0);
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) return {};
    if (remover.errnum() != 0)
      return system_error(remover.errnum(), "remove '" + remover.where() + "' in '" + name + "'");
    if (is_empty && errno != ENOTEMPTY) return system_error(errno, "remove '" + name + "'");
  }
  return Error{Errc::exhausted, "remove '" + name + "': it is filled as fast as it is emptied"};
}

std::uint64_t bytes_of_tree(int parent, const std::string& name) {
  struct stat info {};
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  if (::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
    add_bytes(parent, name.c_str(), info.st_dev, 0, bytes, files);
  return bytes;
}

}  // namespace acc::agent::daemon
