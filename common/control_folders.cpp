#include "common/control_folders.hpp"

#include "common/foreign_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace acc {

namespace {

Result<UniqueFd> open_checked(int parent, const std::string& name, const std::string& shown,
                              bool is_base_shared) {
  const bool is_base = parent == AT_FDCWD;
  UniqueFd fd{::openat(parent, name.c_str(),
                       O_PATH | O_DIRECTORY | O_CLOEXEC | (is_base ? 0 : O_NOFOLLOW))};
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return system_error(errno, "open the folder '" + shown + "'");
  if (is_base_shared) return fd;
  if (info.st_uid != ::geteuid())
    return Error{Errc::not_permitted,
                 "'" + shown + "' belongs to uid " + std::to_string(info.st_uid)};
  // A base that the user named is the user's to judge.
  if (!is_base && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{Errc::not_permitted, "'" + shown + "' can be written by other users"};
  return fd;
}

}  // namespace

std::vector<ControlFolder> control_folders(const char* runtime_folder, uid_t uid,
                                           const std::string& run_user,
                                           const std::string& shared) {
  std::vector<ControlFolder> places;
  const auto user = std::to_string(uid);
  auto usual = run_user + "/" + user;
  std::string named = runtime_folder != nullptr ? runtime_folder : "";
  while (named.size() > 1 && named.ends_with('/')) named.pop_back();
  if (named.starts_with('/') && named != usual) places.push_back({named, "acc", false});
  places.push_back({std::move(usual), "acc", false});
  places.push_back({shared, "acc-" + user, true});
  return places;
}

Result<UniqueFd> open_control_folder(const ControlFolder& place, bool makes) {
  auto folder = open_checked(AT_FDCWD, place.base, place.base, place.is_base_shared);
  std::string path = place.base;
  for (const auto& name : {place.own, std::string{"jobs"}}) {
    if (!folder) return folder;
    path += "/" + name;
    if (makes && ::mkdirat(folder->get(), name.c_str(), 0700) != 0 && errno != EEXIST)
      return system_error(errno, "make the folder '" + path + "'");
    folder = open_checked(folder->get(), name, path, false);
  }
  return folder;
}

bool may_hold_daemon(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return true;
  return (info.st_uid == ::geteuid() || info.st_uid == 0) && !is_writable_by_others(folder);
}

}  // namespace acc
