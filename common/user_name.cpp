#include "common/user_name.hpp"

#include <pwd.h>

namespace acc {

std::string user_name(uid_t uid) {
  const auto* user = ::getpwuid(uid);
  return user != nullptr ? user->pw_name : std::to_string(uid);
}

}  // namespace acc
