// LD_PRELOAD=no_ipv6.so: a kernel that was started without IPv6 (ipv6.disable=1).
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

extern "C" int socket(int family, int type, int protocol) noexcept {
  if (family != AF_INET6) return static_cast<int>(::syscall(SYS_socket, family, type, protocol));
  errno = EAFNOSUPPORT;
  return -1;
}
