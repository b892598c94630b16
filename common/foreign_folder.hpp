#pragma once

#include <string>

namespace acc {

/// Why another user may replace a folder by one of its own. Every folder above it is looked at,
/// through each symbolic link on the way, without following what others may have made: it belongs
/// to this user or to root, and only these, groups of this user, and root's system groups (as
/// staff for /var/local) may write to it, by its mode or its POSIX ACL, unless it is sticky. In a
/// user namespace a folder whose owner has no number there counts as root's, if it is sticky or
/// only that owner may write to it; where the number that stands for it is also that of a user
/// there, only as far as this process is the namespace's root and can tell the two apart. What is
/// missing is left out.
/// @return "'/home/ann', above it, belongs to uid 1001"; empty: nobody may
[[nodiscard]] std::string replaceable_by_others(const std::string& folder);

/// Whether others than those may write to `folder` itself, sticky or not. False: it isn't there.
[[nodiscard]] bool is_writable_by_others(const std::string& folder);

}  // namespace acc
