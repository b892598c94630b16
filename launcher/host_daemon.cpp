#include "launcher/host_daemon.hpp"

#include "common/daemon_places.hpp"
#include "common/duration.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace acc::launcher {

namespace {

/// A daemon that is stopped (SIGSTOP) or stuck takes connections, as the kernel does that for it:
/// it is asked for what costs it nothing.
bool is_answering(int fd) {
  constexpr int kPatience_ms = 4'000;
  constexpr std::string_view kAsk =
      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (::send(fd, kAsk.data(), kAsk.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return true;
  const auto until = clock_now() + Millis{kPatience_ms};
  for (;;) {
    const auto left = std::chrono::ceil<Millis>(until - clock_now()).count();
    pollfd answer{fd, POLLIN, 0};
    const int n = ::poll(&answer, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

bool is_trusted(uid_t user) { return user == 0 || user == ::geteuid(); }

/// errno; 0: a process listens there. Its user is the daemon's. ETIMEDOUT: it gives no answer.
/// EPERM: it is another user's, and wasn't named.
int try_socket(const std::string& path, bool is_named, uid_t& user) {
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
  if (!is_named && !is_trusted(user)) return EPERM;
  return failed != 0 || is_answering(fd.get()) ? 0 : ETIMEDOUT;
}

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second : std::string{};
}

std::string why_of(int failed, bool is_of_runtime_folder) {
  if (failed == ECONNREFUSED) return "nothing listens there";
  if (failed == EPERM)
    return is_of_runtime_folder
               ? "another user listens or may listen there, and would receive the command: unset "
                 "XDG_RUNTIME_DIR if it is another user's (su without -), or name the socket in "
                 "ACC_AGENT_SOCKET if you trust that user"
               : "another user listens or may listen there, and would receive the command: name "
                 "the socket in ACC_AGENT_SOCKET if you trust that user";
  if (failed == ETIMEDOUT)
    return "it takes connections, but gives no answer: its process is stopped (kill -CONT PID) or "
           "stuck (systemctl restart acc-agent; jobs go on)";
  return std::strerror(failed);
}

}  // namespace

DaemonFound find_daemon(const Environment& environment, const std::string& of_system) {
  std::vector<DaemonPlace> places;
  const auto named = value_of(environment, "ACC_AGENT_SOCKET");
  const bool is_named = !named.empty() && !named.starts_with('@');  // @: of a worker in a job
  if (is_named) {
    places.push_back({named});
  } else {
    const UserFolders folders{value_of(environment, "XDG_RUNTIME_DIR"),
                              value_of(environment, "XDG_STATE_HOME"),
                              value_of(environment, "HOME")};
    places = user_daemon_places(folders, ::geteuid());
    places.insert(places.begin(), DaemonPlace{of_system});
  }
  DaemonFound found;
  for (const auto& place : places) {
    uid_t user = 0;
    const int failed = place.is_trusted ? try_socket(place.socket, is_named, user) : EPERM;
    if (failed == 0) return {place.socket, user != 0, {}};
    found.why += (found.why.empty() ? "" : ", ") + printable(place.socket) + ": " +
                 why_of(failed, place.is_of_runtime_folder);
  }
  return found;
}

}  // namespace acc::launcher
