#include "launcher/host_daemon.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace acc::launcher {

namespace {

/// errno; 0: a process listens there. Its user is the daemon's.
int try_socket(const std::string& path, uid_t& user) {
  const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return errno;
  // Through a descriptor of its folder: the path may be longer than sun_path.
  const auto slash = path.rfind('/');
  const auto folder = slash == std::string::npos ? std::string{"."} : path.substr(0, slash + 1);
  const UniqueFd at{::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!at) return errno;
  const auto name = "/proc/self/fd/" + std::to_string(at.get()) + "/" + path.substr(slash + 1);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  name.copy(address.sun_path, name.size());
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  const int failed = ::connect(fd.get(), to, sizeof address) == 0 ? 0 : errno;
  if (failed != 0 && failed != EAGAIN) return failed;  // EAGAIN: its queue is full, so it lives
  ucred peer{};
  socklen_t size = sizeof peer;
  user = ::geteuid();
  if (failed == 0 && ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
    user = peer.uid;
  return 0;
}

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second : std::string{};
}

}  // namespace

DaemonFound find_daemon(const Environment& environment) {
  std::string places[] = {value_of(environment, "ACC_AGENT_SOCKET"), "/run/acc/agent.sock",
                          value_of(environment, "XDG_RUNTIME_DIR")};
  if (places[0].starts_with('@')) places[0].clear();  // the socket of a worker in a job
  if (!places[0].empty()) places[1] = places[2] = {};
  if (!places[2].empty()) places[2] += "/acc/agent.sock";
  DaemonFound found;
  for (const auto& place : places) {
    if (place.empty()) continue;
    uid_t user = 0;
    const int failed = try_socket(place, user);
    if (failed == 0) return {place, user != 0, {}};
    found.why += (found.why.empty() ? "" : ", ") + printable(place) + ": " +
                 (failed == ECONNREFUSED ? "nothing listens there" : std::strerror(failed));
  }
  return found;
}

}  // namespace acc::launcher
