#include "agent/daemon/http_socket_file.hpp"

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

}  // namespace

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
  // Nobody can connect before listen(), and afterwards the mode is right.
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return system_error(errno, attempted);
  if (::chmod(made.c_str(), mode) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
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
