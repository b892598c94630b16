#include "launcher/host_daemon.hpp"

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

/// errno; 0: a process listens there. Its user is the daemon's. ETIMEDOUT: it gives no answer.
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
  return failed != 0 || is_answering(fd.get()) ? 0 : ETIMEDOUT;
}

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second : std::string{};
}

std::string why_of(int failed) {
  if (failed == ECONNREFUSED) return "nothing listens there";
  if (failed == ETIMEDOUT)
    return "it takes connections, but gives no answer: its process is stopped (kill -CONT PID) or "
           "stuck (systemctl restart acc-agent; jobs go on)";
  return std::strerror(failed);
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
    found.why += (found.why.empty() ? "" : ", ") + printable(place) + ": " + why_of(failed);
  }
  return found;
}

}  // namespace acc::launcher
