#pragma once

#include <sys/types.h>

#include <string>

namespace acc {

/// As acc-agent names the owner of a job: the number, in digits, of one without a name.
[[nodiscard]] std::string user_name(uid_t uid);

}  // namespace acc
