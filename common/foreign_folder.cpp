#include "common/foreign_folder.hpp"

#include "common/posix_acl.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "common/unmapped_id.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

namespace acc {

namespace fs = std::filesystem;

namespace {

constexpr gid_t kFirstOfPeople = 1000;  // SYS_GID_MAX + 1 of login.defs
constexpr gid_t kUsers = 100;           // everybody's on some systems

/// Whether `folder`, of the uid that `any` has, belongs to nobody in this user namespace. Where the
/// number is mapped, too (65536 ids of userns-remap), it may as well be the namespace's own nobody:
/// the namespace's root may do this to folders of those that are mapped (CAP_FOWNER), and to no
/// others.
bool is_of_nobody(const UnmappedId& any, const fs::path& folder) {
  if (!any.is_mapped_too) return true;
  if (::geteuid() != 0) return false;
  const UniqueFd fd{
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | O_NOATIME)};
  return !fd && errno == EPERM;
}

std::vector<gid_t> own_groups() {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int n = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(n, 0)));
  groups.push_back(::getegid());
  // Of an id that isn't mapped nobody knows whether it is the same group.
  if (const auto any = unmapped_id("gid")) std::erase(groups, any->number);
  return groups;
}

class Judge {
 public:
  /// Empty: its entries are safe from others.
  [[nodiscard]] std::string fault_of(const fs::path& folder) const {
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) return {};
    const auto named = in_quotes(folder.native()) + ", above it, ";
    if (!is_trusted(info, folder)) return named + "belongs to uid " + std::to_string(info.st_uid);
    if ((info.st_mode & S_ISVTX) == 0 && is_open(info, folder))
      return named + "can be written by other users and isn't sticky (chmod +t it)";
    return {};
  }

  /// As the kernel refuses them (fs.protected_symlinks), and also where only a group or an ACL lets
  /// others make links.
  [[nodiscard]] bool is_planted(const struct stat& link, const fs::path& folder) const {
    struct stat above {};
    if (::stat(folder.c_str(), &above) != 0) return true;
    return link.st_uid != ::geteuid() && link.st_uid != above.st_uid && link.st_uid != 0 &&
           is_open(above, folder);
  }

  /// May others write to it, sticky or not?
  [[nodiscard]] bool is_open(const struct stat& info, const fs::path& folder) const {
    if ((info.st_mode & S_IWOTH) != 0) return true;
    const auto writers = writers_beside_owner(folder.native(), info);
    const auto is_foreign_user = [](uid_t uid) { return uid != 0 && uid != ::geteuid(); };
    const auto is_foreign_group = [&](gid_t gid) { return !is_group_trusted(info.st_uid, gid); };
    return !writers.is_known || (writers.group && is_foreign_group(info.st_gid)) ||
           std::ranges::any_of(writers.users, is_foreign_user) ||
           std::ranges::any_of(writers.groups, is_foreign_group);
  }

 private:
  [[nodiscard]] bool is_trusted(const struct stat& info, const fs::path& folder) const {
    if (info.st_uid == 0 || info.st_uid == ::geteuid()) return true;
    if (!outside_ || info.st_uid != outside_->number) return false;
    // It may be the machine's root or any user of it. Those have no folder of this process in
    // theirs, unless they let it write there: by the group bits, behind which an ACL is, too.
    const bool is_closed =
        (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (info.st_mode & S_ISVTX) != 0;
    return is_closed && is_of_nobody(*outside_, folder);
  }
  [[nodiscard]] bool is_group_trusted(uid_t owner, gid_t group) const {
    if (std::ranges::find(groups_, group) != groups_.end()) return true;
    return ::geteuid() == 0 && owner == 0 && group < kFirstOfPeople && group != kUsers;
  }

  std::optional<UnmappedId> outside_ = unmapped_id("uid");
  std::vector<gid_t> groups_ = own_groups();
};

/// Puts the components of `path` before those that are left.
void put_first(const fs::path& path, std::deque<fs::path>& left) {
  std::deque<fs::path> parts;
  for (const auto& part : path.relative_path())
    if (!part.empty() && part != ".") parts.push_back(part);
  left.insert(left.begin(), parts.begin(), parts.end());
}

}  // namespace

std::string replaceable_by_others(const std::string& folder) {
  constexpr int kMostLinks = 40;  // as the kernel
  const Judge judge;
  std::error_code error;
  std::deque<fs::path> left;
  put_first(fs::absolute(folder, error), left);
  fs::path at{"/"};  // without links
  for (int links = 0; !left.empty();) {
    if (auto fault = judge.fault_of(at); !fault.empty()) return fault;
    const auto part = left.front();
    left.pop_front();
    if (part == "..") {
      at = at.parent_path();
      continue;
    }
    const auto next = at / part;
    struct stat info {};
    if (::lstat(next.c_str(), &info) != 0) return {};  // the kernel goes no further, either
    if (!S_ISLNK(info.st_mode)) {
      at = next;
      continue;
    }
    if (judge.is_planted(info, at))
      return in_quotes(next.native()) +
             ", on the way to it, is another user's link in a folder that all may write to";
    const auto target = fs::read_symlink(next, error);
    if (error || ++links > kMostLinks) return {};
    if (target.is_absolute()) at = "/";
    put_first(target, left);
  }
  return {};
}

bool is_writable_by_others(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return false;
  return Judge{}.is_open(info, folder);
}

}  // namespace acc
