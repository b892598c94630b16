#include "common/posix_acl.hpp"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace acc {

namespace {

constexpr const char* kAttribute = "system.posix_acl_access";
constexpr std::size_t kLargest = 65536;  // of an extended attribute

// Little-endian on every processor; those that we build for are.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

bool is_of_group_class(std::uint16_t tag) {
  return tag == ACL_USER || tag == ACL_GROUP_OBJ || tag == ACL_GROUP;
}

}  // namespace

std::optional<PosixAcl> PosixAcl::parse(ssize_t size, const char* bytes, int errnum) {
  if (size < 0 && (errnum == ENODATA || errnum == EOPNOTSUPP || errnum == ENOSYS))
    return std::nullopt;
  PosixAcl acl;
  posix_acl_xattr_header header{};
  if (size < static_cast<ssize_t>(sizeof header)) return acl;
  std::memcpy(&header, bytes, sizeof header);
  const auto left = static_cast<std::size_t>(size) - sizeof header;
  if (header.a_version != POSIX_ACL_XATTR_VERSION || left % sizeof(posix_acl_xattr_entry) != 0)
    return acl;
  for (std::size_t at = sizeof header; at < static_cast<std::size_t>(size);
       at += sizeof(posix_acl_xattr_entry)) {
    posix_acl_xattr_entry entry{};
    std::memcpy(&entry, bytes + at, sizeof entry);
    acl.entries_.push_back({entry.e_tag, entry.e_perm, entry.e_id});
  }
  return acl;
}

std::optional<PosixAcl> PosixAcl::of(const std::string& path) {
  std::vector<char> bytes(kLargest);
  const auto size = ::getxattr(path.c_str(), kAttribute, bytes.data(), bytes.size());
  return parse(size, bytes.data(), errno);
}

std::optional<PosixAcl> PosixAcl::of(int fd) {
  std::vector<char> bytes(kLargest);
  const auto size = ::fgetxattr(fd, kAttribute, bytes.data(), bytes.size());
  return parse(size, bytes.data(), errno);
}

std::uint16_t PosixAcl::mask() const {
  for (const auto& entry : entries_)
    if (entry.tag == ACL_MASK) return entry.rights;
  return ACL_READ | ACL_WRITE | ACL_EXECUTE;
}

PosixAcl::Writers PosixAcl::writers() const {
  Writers found;
  found.is_known = !entries_.empty();
  for (const auto& entry : entries_) {
    if (!is_of_group_class(entry.tag) || (entry.rights & mask() & ACL_WRITE) == 0) continue;
    if (entry.tag == ACL_GROUP_OBJ) found.group = true;
    if (entry.tag == ACL_USER) found.users.push_back(entry.id);
    if (entry.tag == ACL_GROUP) found.groups.push_back(entry.id);
  }
  return found;
}

bool PosixAcl::close_to_readers(int fd) const {
  if (entries_.empty()) return false;
  std::vector<char> bytes(sizeof(posix_acl_xattr_header));
  const posix_acl_xattr_header header{POSIX_ACL_XATTR_VERSION};
  std::memcpy(bytes.data(), &header, sizeof header);
  for (const auto& entry : entries_) {
    auto rights = entry.rights;
    if (is_of_group_class(entry.tag))
      rights = (rights & ACL_WRITE) == 0 ? std::uint16_t{0}
                                         : static_cast<std::uint16_t>(rights | ACL_READ);
    const posix_acl_xattr_entry one{entry.tag, rights, entry.id};
    bytes.resize(bytes.size() + sizeof one);
    std::memcpy(bytes.data() + bytes.size() - sizeof one, &one, sizeof one);
  }
  return ::fsetxattr(fd, kAttribute, bytes.data(), bytes.size(), 0) == 0;
}

PosixAcl::Writers writers_beside_owner(const std::string& path, const struct stat& info) {
  // Without the bit in the mode the mask has no entry write.
  if ((info.st_mode & S_IWGRP) == 0) return {};
  const auto acl = PosixAcl::of(path);
  if (acl) return acl->writers();
  PosixAcl::Writers group;
  group.group = true;
  return group;
}

}  // namespace acc
