#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc {

/// The POSIX access ACL of a file, beyond its mode. With one the mode's group bits are the mask of
/// all entries but the owner's and the others', so that they don't say what the group may.
class PosixAcl {
 public:
  /// nullopt: the file has none, or its file system has none.
  static std::optional<PosixAcl> of(const std::string& path);
  static std::optional<PosixAcl> of(int fd);

  struct Writers {
    bool group = false;  ///< the file's own
    std::vector<uid_t> users;
    std::vector<gid_t> groups;
    bool is_known = true;  ///< false: the ACL can't be read, so that anybody may be among them
  };
  /// Who may write besides the owner and those that the mode names as others.
  [[nodiscard]] Writers writers() const;
  /// Takes all rights from the entries that don't give the right to write, and lets the others
  /// read, too, as far as the mask does, which stays. @return false: it can't be set
  [[nodiscard]] bool close_to_readers(int fd) const;

 private:
  struct Entry {
    std::uint16_t tag = 0;
    std::uint16_t rights = 0;
    std::uint32_t id = 0;
  };
  static std::optional<PosixAcl> parse(ssize_t size, const char* bytes, int errnum);
  [[nodiscard]] std::uint16_t mask() const;

  std::vector<Entry> entries_;  ///< empty: it can't be read
};

/// Who may write to a file besides its owner and the others of its mode, by its ACL or without one.
[[nodiscard]] PosixAcl::Writers writers_beside_owner(const std::string& path,
                                                     const struct stat& info);

}  // namespace acc
