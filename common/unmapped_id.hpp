#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace acc {

/// The number that stands for all ids which a user namespace doesn't map.
struct UnmappedId {
  std::uint32_t number = 65534;
  bool is_mapped_too = false;  ///< it is also the number of an id of its own
};

/// Of this process; nothing outside of a user namespace, and in one that maps all.
/// @param kind  "uid" or "gid"
[[nodiscard]] std::optional<UnmappedId> unmapped_id(const std::string& kind);
/// The same of the text of a map (/proc/self/uid_map) and of the kernel's overflow number.
[[nodiscard]] std::optional<UnmappedId> unmapped_in(std::string_view map, std::uint32_t overflow);

/// The uid by which the kernel names all users that aren't mapped: it is no user's.
[[nodiscard]] std::optional<uid_t> uid_of_unmapped();

/// Whether the process at the other end of a Unix socket (SO_PEERCRED) runs as this one's user.
/// Where this one's number is that of all unmapped users (a container with `USER nobody`), it must
/// be in this user namespace, too.
[[nodiscard]] bool is_own_user(uid_t peer, pid_t peer_pid);
/// This process's uid is the one of all unmapped users: by a number alone it can't tell others from
/// its own user.
[[nodiscard]] bool is_own_uid_ambiguous();

}  // namespace acc
