#include "agent/daemon/http_socket_file.hpp"

#include "common/foreign_folder.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace acc::agent::daemon {

namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, path.data(), path.size());
  return at;
}

UniqueFd new_socket() {
  return UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

/// A connection that the kernel accepts proves that a process listens. EAGAIN: its queue is full.
bool is_served(const std::string& path) {
  const auto fd = new_socket();
  const auto at = address_of(path);
  return fd && (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 ||
                errno == EAGAIN);
}

/// Not by its name alone: chmod() would follow a link that took its place.
bool set_mode(const std::string& path, mode_t mode) {
  const UniqueFd file{::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return false;
  if (S_ISSOCK(info.st_mode) && info.st_uid == ::geteuid())
    return (info.st_mode & 07777) == mode ||
           ::chmod(("/proc/self/fd/" + std::to_string(file.get())).c_str(), mode) == 0;
  errno = EEXIST;
  return false;
}

}  // namespace

Result<void> SocketFile::check_place(const std::string& path) {
  const auto why = replaceable_by_others(path);
  if (why.empty()) return {};
  return Error{Errc::not_permitted,
               "listen at '" + path + "': the socket could be replaced by another user's: " + why +
                   ": choose one below /run or $XDG_RUNTIME_DIR with --socket"};
}

Result<SocketFile> SocketFile::open(const std::string& path, mode_t mode) {
  const std::string attempted = "listen at '" + path + "'";
  const std::string made = path + '.' + std::to_string(::getpid());
  if (path.empty() || path[0] != '/')
    return Error{Errc::bad_usage, attempted + ": the path of a socket must be absolute"};
  if (made.size() >= sizeof sockaddr_un::sun_path)
    return Error{Errc::bad_usage, attempted + ": the path is too long for a socket; at most " +
                                      std::to_string(sizeof sockaddr_un::sun_path -
                                                     (made.size() - path.size()) - 1) +
                                      " bytes: choose another with --socket"};
  if (const auto safe = check_place(path); safe.has_error()) return safe.error();
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode))
      return Error{Errc::bad_usage,
                   attempted +
                       ": a file that is no socket stands there: remove it, or choose "
                       "another path with --socket"};
    if (is_served(path))
      return Error{Errc::unavailable, attempted + ": another process serves it already"};
  }
  auto fd = new_socket();
  const auto at = address_of(made);
  ::unlink(made.c_str());
  // Nobody can connect before listen(), and afterwards the mode is right. The file is made with the
  // mode of the unbound socket, less the umask.
  if (!fd || ::fchmod(fd.get(), mode) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return system_error(errno, attempted);
  if (!set_mode(made, mode) || ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::lstat(made.c_str(), &there) != 0 || ::rename(made.c_str(), path.c_str()) != 0) {
    const int errnum = errno;
    ::unlink(made.c_str());
    return system_error(errnum, attempted);
  }
  return SocketFile{std::move(fd), path, there.st_dev, there.st_ino};
}

bool SocketFile::is_in_place() const {
  struct stat there {};
  return ::lstat(path_.c_str(), &there) == 0 && there.st_dev == device_ && there.st_ino == inode_;
}

SocketFile::~SocketFile() {
  if (!path_.empty() && is_in_place()) ::unlink(path_.c_str());
}

}  // namespace acc::agent::daemon
