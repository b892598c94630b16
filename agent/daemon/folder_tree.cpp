#include "agent/daemon/folder_tree.hpp"

#include "agent/daemon/same_mount.hpp"
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
#include <optional>
#include <string_view>

namespace acc::agent::daemon {

namespace {

constexpr int kTreeFlags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
// Below it a folder is moved up to the top and emptied there.
constexpr int kDeepest = 32;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

Folder open_tree_folder(int parent, const char* name) {
  UniqueFd fd = open_on_mount(parent, name, kTreeFlags);
  Folder folder{fd ? ::fdopendir(fd.get()) : nullptr};
  if (folder) (void)fd.release();
  return folder;
}

bool is_dots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

// Of a folder that was moved up to the top: whose it must be.
constexpr std::string_view kDeepPrefix = ".deep-";

std::string deep_name(std::optional<uid_t> owner) {
  return std::string{kDeepPrefix} + (owner ? std::to_string(*owner) : "") + "-" + random_name();
}

std::optional<uid_t> owner_in(std::string_view name) {
  if (!name.starts_with(kDeepPrefix)) return std::nullopt;
  name.remove_prefix(kDeepPrefix.size());
  return parse_number<uid_t>(name.substr(0, name.find('-')));
}

// Root could empty the folders of anybody that a user has moved into one of its own, and that this
// user can't empty. So below an entry of the top, which the user can't exchange, only folders of
// its owner are emptied. Root itself empties any: nobody else makes an entry of the top root's.
class Remover {
 public:
  Remover(int top, dev_t device) : top_{top}, device_{device} {}

  // Empties the top; true if it found nothing that has to be visited again.
  bool empty(DIR* top) { return empty(top, 0, std::nullopt); }

  [[nodiscard]] int errnum() const { return errnum_; }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  bool empty(DIR* folder, int depth, std::optional<uid_t> owner) {
    bool is_empty = true;
    const int fd = ::dirfd(folder);
    while (const dirent* entry = ::readdir(folder)) {
      if (is_dots(entry->d_name)) continue;
      if (::unlinkat(fd, entry->d_name, 0) == 0) continue;
      if (errno != EISDIR && errno != EPERM && errno != EBUSY) {
        if (errno != ENOENT) note(entry->d_name);
        continue;
      }
      if (!remove_folder(fd, entry->d_name, depth, depth == 0 ? owner_in(entry->d_name) : owner))
        is_empty = false;
    }
    return is_empty;
  }

  bool remove_folder(int parent, const char* name, int depth, std::optional<uid_t> owner) {
    if (::unlinkat(parent, name, AT_REMOVEDIR) == 0) return true;
    struct stat info {};
    if (!uncover_and_stat(parent, name, info)) {
      if (errno != ENOENT) note(name);
      return true;
    }
    if (!S_ISDIR(info.st_mode) && ::unlinkat(parent, name, 0) == 0) return true;  // it was covered
    if (!S_ISDIR(info.st_mode) || info.st_dev != device_) {
      note(name);
      return true;
    }
    if (depth >= kDeepest) {
      const std::string up = deep_name(owner);
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
      const auto own = owner_of(folder.get());
      if (::geteuid() == 0 && (!own || (owner && *owner != 0 && *own != *owner))) {
        errno = EPERM;
        note(name);
        return true;
      }
      is_empty = empty(folder.get(), depth + 1, own);
    }
    if (::unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT && is_empty) note(name);
    return is_empty;
  }

  static std::optional<uid_t> owner_of(DIR* folder) {
    struct stat info {};
    return ::fstat(::dirfd(folder), &info) == 0 ? std::optional{info.st_uid} : std::nullopt;
  }

  void note(const char* name) {
    if (errnum_ != 0) return;
    where_ = printable(name);
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
    if (!stat_on_mount(::dirfd(folder.get()), entry->d_name, info)) continue;
    constexpr std::uint64_t kBlock = 512;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * kBlock;
    if (S_ISDIR(info.st_mode) && info.st_dev == device && depth < kDeepest)
      add_bytes(::dirfd(folder.get()), entry->d_name, device, depth + 1, bytes, files);
  }
}

}  // namespace

Result<void> remove_tree(int parent, const std::string& name) {
  struct stat info {};
  if (!stat_on_mount(parent, name.c_str(), info)) {
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
    const bool is_empty = remover.empty(folder.get());
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
  if (stat_on_mount(parent, name.c_str(), info))
    add_bytes(parent, name.c_str(), info.st_dev, 0, bytes, files);
  return bytes;
}

}  // namespace acc::agent::daemon
