#include "launcher/ctl/wire.hpp"

#include "agent/shell_interrupt.hpp"
#include "common/text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <utility>

namespace acc::ctl {

namespace {

constexpr std::size_t kMostAnswer = 64 * 1024 * 1024;

enum class Ready { yes, interrupted, timed_out };

Ready wait_for(int fd, short what, std::optional<Instant> until, const Interrupts* interrupts) {
  for (;;) {
    int patience = -1;
    if (until) {
      const auto left = std::chrono::ceil<Millis>(*until - clock_now()).count();
      patience = static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
    }
    std::array<pollfd, 2> fds{
        {{fd, what, 0}, {interrupts != nullptr ? interrupts->fd() : -1, POLLIN, 0}}};
    const int n = ::poll(fds.data(), fds.size(), patience);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0 && fds[1].revents != 0) return Ready::interrupted;
    if (n > 0) return Ready::yes;
    return Ready::timed_out;
  }
}

/// Of a service that has closed already, as one that refuses may, the answer is there to be read.
bool has_other_end_closed(int why) { return why == EPIPE || why == ECONNRESET; }

Result<void> send_all(int fd, std::string_view text, const std::string& socket) {
  const auto until = clock_now() + kAnswerPatience;
  while (!text.empty()) {
    const auto n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (wait_for(fd, POLLOUT, until, nullptr) != Ready::yes)
        return Error{Errc::timed_out, "'" + socket + "' takes no request"};
    } else if (has_other_end_closed(errno)) {
      return {};
    } else if (errno != EINTR) {
      return system_error(errno, "write to '" + socket + "'");
    }
  }
  return {};
}

}  // namespace

std::string encode(const HttpRequest& request) {
  std::string text = request.method + " " + request.target + " HTTP/1.1\r\nHost: localhost\r\n";
  if (!request.last_id.empty()) text += "Last-Event-ID: " + request.last_id + "\r\n";
  if (!request.body.empty()) text += "Content-Type: application/json\r\n";
  if (request.method != "GET")
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text + "Connection: close\r\n\r\n" + request.body;
}

// ---- Ctrl-C ----

Interrupts::Interrupts() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = UniqueFd{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
}

Interrupts::~Interrupts() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int Interrupts::take() const {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return 0;
  if (info.ssi_signo == SIGINT && info.ssi_code == SI_KERNEL) agent::note_interrupt_key();
  return static_cast<int>(info.ssi_signo);
}

// ---- connections ----

// Through a descriptor of its folder: the path may be longer than sun_path.
Result<UniqueFd> connect_to(const std::string& socket) {
  const auto slash = socket.rfind('/');
  const auto folder = slash == std::string::npos ? std::string{"."} : socket.substr(0, slash + 1);
  const auto attempted = "connect to " + in_quotes(socket);
  const UniqueFd at{::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!at) return system_error(errno, attempted);
  const std::string path =
      "/proc/self/fd/" + std::to_string(at.get()) + "/" + socket.substr(slash + 1);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return system_error(ENAMETOOLONG, attempted);
  path.copy(address.sun_path, path.size());
  UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return system_error(errno, attempted);
  const auto until = clock_now() + kAnswerPatience;
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED)
      return Error{Errc::unavailable, attempted + ": nothing listens there", ECONNREFUSED};
    if (errno != EAGAIN) return system_error(errno, attempted);
    if (clock_now() > until) return Error{Errc::timed_out, attempted + ": it is busy"};
    ::poll(nullptr, 0, 10);  // its queue is full; the kernel has nothing to wait for
  }
  return fd;
}

bool is_nothing_listening(const Error& error) { return error.errnum == ECONNREFUSED; }

Result<std::string> ask_agent(const std::string& socket, const std::string& line, Millis patience) {
  const auto fd = connect_to(socket);
  if (!fd) return fd.error();
  if (const auto sent = send_all(fd->get(), line + "\n", socket); !sent) return sent.error();
  const auto until = clock_now() + patience;
  std::string answer;
  std::array<char, 65536> chunk;
  while (answer.size() < kMostAnswer) {
    const auto n = ::recv(fd->get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      answer.append(chunk.data(), static_cast<std::size_t>(n));
      if (answer.ends_with('\n')) return answer;
    } else if (n == 0 || has_other_end_closed(errno)) {
      break;
    } else if (errno == EAGAIN) {
      if (wait_for(fd->get(), POLLIN, until, nullptr) != Ready::yes)
        return Error{Errc::timed_out, in_quotes(socket) + " gives no answer"};
    } else if (errno != EINTR) {
      return system_error(errno, "read from " + in_quotes(socket));
    }
  }
  return Error{Errc::unavailable, in_quotes(socket) + " closed the connection without an answer"};
}

namespace {

/// A request to another node has the answer of this node's acc-agent within 3 s for the connection
/// and 25 s for the other one's reply.
Millis patience_of(const HttpRequest& request) {
  constexpr Millis kOtherNode{32'000};
  return request.target.starts_with("/v1/nodes/") ? kOtherNode : kAnswerPatience;
}

/// Why an answer needs not be waited for: acc-agent doesn't even answer what costs it nothing.
std::optional<Error> silence_at(const std::string& socket) {
  constexpr Millis kPatience{2'000};
  const auto fd = connect_to(socket);
  if (!fd) return fd.error();
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool is_known =
      ::getsockopt(fd->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  const auto text = encode({.target = "/healthz"});
  const auto sent = ::send(fd->get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 || wait_for(fd->get(), POLLIN, clock_now() + kPatience, nullptr) == Ready::yes)
    return std::nullopt;
  const auto pid = std::to_string(peer.pid);
  return Error{Errc::timed_out,
               in_quotes(socket) + " takes connections, but gives no answer: its acc-agent " +
                   (is_known ? "(pid " + pid + ") is stopped (kill -CONT " + pid + ")"
                             : "is stopped (kill -CONT PID)") +
                   " or stuck (systemctl restart acc-agent; jobs go on)"};
}

}  // namespace

Exchange::Exchange(UniqueFd fd, std::string socket)
    : fd_{std::move(fd)}, socket_{std::move(socket)} {}

Result<Exchange> Exchange::open(const std::string& socket, const HttpRequest& request) {
  auto fd = connect_to(socket);
  if (!fd) return fd.error();
  if (const auto sent = send_all(fd->get(), encode(request), socket); !sent) return sent.error();
  Exchange exchange{std::move(*fd), socket};
  constexpr Millis kDoubtAfter{3'000};
  const auto began = clock_now();
  auto until = began + std::min(kDoubtAfter, request.patience.value_or(kDoubtAfter));
  std::array<char, 65536> chunk;
  while (!exchange.response_->has_header()) {
    if (wait_for(exchange.fd_.get(), POLLIN, until, nullptr) != Ready::yes) {
      const bool is_asked = request.patience || until != began + kDoubtAfter;
      if (is_asked)
        return Error{Errc::timed_out,
                     in_quotes(socket) + " gives no answer" +
                         (request.method == "GET" ? "" : ", and may carry out the request all the "
                                                         "same: look before you ask again")};
      if (auto why = silence_at(socket)) return std::move(*why);
      until = began + patience_of(request);
      continue;
    }
    const auto n = ::recv(exchange.fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0)
      return Error{Errc::unavailable,
                   in_quotes(socket) + " closed the connection without an answer"};
    const auto fed = exchange.response_->feed({chunk.data(), static_cast<std::size_t>(n)});
    if (!fed) return Error{Errc::malformed, in_quotes(socket) + ": " + fed.error().what};
  }
  return exchange;
}

Arrived Exchange::next(std::string& into, std::optional<Instant> until,
                       const Interrupts* interrupts) {
  std::array<char, 65536> chunk;
  for (;;) {
    into = response_->take_body();
    if (!into.empty()) return Arrived::data;
    if (response_->is_done()) return Arrived::end;
    const auto ready = wait_for(fd_.get(), POLLIN, until, interrupts);
    if (ready == Ready::interrupted) return Arrived::interrupted;
    if (ready == Ready::timed_out) return Arrived::timed_out;
    const auto n = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return n == 0 && response_->end() ? Arrived::end : Arrived::lost;
    if (!response_->feed({chunk.data(), static_cast<std::size_t>(n)})) return Arrived::lost;
  }
}

Result<Answer> ask_service(const std::string& socket, const HttpRequest& request) {
  auto exchange = Exchange::open(socket, request);
  if (!exchange) return exchange.error();
  Answer answer{exchange->status(), {}};
  const auto until = clock_now() + kAnswerPatience;
  std::string piece;
  for (;;) {
    switch (exchange->next(piece, until, nullptr)) {
      case Arrived::data:
        answer.body += piece;
        if (answer.body.size() <= kMostAnswer) continue;
        return Error{Errc::malformed, in_quotes(socket) + " answers with more than 64 MiB"};
      case Arrived::end:
        return answer;
      case Arrived::timed_out:
        return Error{Errc::timed_out, in_quotes(socket) + " doesn't finish its answer"};
      case Arrived::lost:
      case Arrived::interrupted:
        return Error{Errc::unavailable, in_quotes(socket) + " closed the connection early"};
    }
  }
}

static int output_errno = 0;

bool write_out(int fd, std::string_view text, const Interrupts* interrupts) {
  constexpr std::size_t kPiece = 4096;  // of which a pipe that is ready takes all
  while (!text.empty()) {
    if (wait_for(fd, POLLOUT, std::nullopt, interrupts) == Ready::interrupted) return false;
    const auto n = ::write(fd, text.data(), std::min(text.size(), kPiece));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      if (fd == STDOUT_FILENO && errno != EPIPE) output_errno = errno;
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

int output_failure() { return output_errno; }

}  // namespace acc::ctl
