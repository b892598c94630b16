#pragma once

#include "agent/daemon/guardian_words.hpp"
#include "common/error.hpp"

#include <string>

namespace acc::agent::daemon {

/// Of the user data base. It may ask a directory server and block: not for the loop's thread. A uid
/// that it doesn't know gets its number as name, "/" as home and `gid` alone.
[[nodiscard]] Result<LoginUser> look_up_user(uid_t uid, gid_t gid);
/// A name, or a uid that the data base knows.
[[nodiscard]] Result<LoginUser> look_up_user(const std::string& name);

}  // namespace acc::agent::daemon
