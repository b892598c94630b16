#include "agent/daemon/login_user.hpp"

#include "common/text.hpp"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>

namespace acc::agent::daemon {

namespace {

std::vector<gid_t> groups_of(const char* name, gid_t gid) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  // Too small: it says how many there are.
  if (::getgrouplist(name, gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(name, gid, groups.data(), &count) < 0) return {gid};
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

std::string or_default(const char* text, const char* standard) {
  return text != nullptr && *text != '\0' ? text : standard;
}

LoginUser from(const passwd& entry) {
  return {entry.pw_uid,
          entry.pw_gid,
          entry.pw_name,
          or_default(entry.pw_dir, "/"),
          or_default(entry.pw_shell, "/bin/sh"),
          groups_of(entry.pw_name, entry.pw_gid)};
}

}  // namespace

Result<LoginUser> look_up_user(uid_t uid, gid_t gid) {
  std::vector<char> memory(16384);
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwuid_r(uid, &entry, memory.data(), memory.size(), &found);
  if (found != nullptr) return from(entry);
  if (error != 0 && error != ENOENT && error != ESRCH)
    return system_error(error, "look up the user " + std::to_string(uid));
  return LoginUser{uid, gid, std::to_string(uid), "/", "/bin/sh", {gid}, false};
}

Result<LoginUser> look_up_user(const std::string& name) {
  std::vector<char> memory(16384);
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwnam_r(name.c_str(), &entry, memory.data(), memory.size(), &found);
  if (found != nullptr) return from(entry);
  if (const auto uid = parse_number<uid_t>(name)) {
    ::getpwuid_r(*uid, &entry, memory.data(), memory.size(), &found);
    if (found != nullptr) return from(entry);
  }
  if (error != 0 && error != ENOENT && error != ESRCH)
    return system_error(error, "look up the user " + in_quotes(name));
  return Error{Errc::bad_usage, "user: no user " + in_quotes(name) + " on this node"};
}

}  // namespace acc::agent::daemon
