#include "agent/life_line.hpp"

#include "agent/fanout/orders.hpp"
#include "common/duration.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "common/version.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>

namespace acc::agent {

namespace {

constexpr Millis kStartPatience{30'000};
constexpr Millis kGoPatience{600'000};
constexpr Millis kMarkPatience{5'000};
constexpr std::size_t kMostVariables = 10'000;

int millis_until(Instant until) {
  const auto left = std::chrono::duration_cast<Millis>(until - clock_now());
  return left.count() < 0 ? 0 : static_cast<int>(left.count()) + 1;
}

// Byte by byte: what follows the order to start belongs to the loop.
Result<std::string> read_line(int fd, Instant until, const std::string& what) {
  std::string line;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    const int n = ::poll(&ready, 1, millis_until(until));
    if (n == 0) return Error{Errc::timed_out, "--life_line: " + what + " did not come"};
    if (n < 0 && errno == EINTR) continue;
    char c = 0;
    const ssize_t got = ::read(fd, &c, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return system_error(errno, "--life_line: read descriptor " + std::to_string(fd));
    if (got == 0) return Error{Errc::unavailable, "--life_line: closed before " + what};
    if (c == '\n') return line;
    line += c;
    if (line.size() > kMaxOrder)
      return Error{Errc::malformed,
                   "--life_line: a line is longer than " + std::to_string(kMaxOrder) + " bytes"};
  }
}

void write_mark(const LaunchMark& mark, const std::string& token) {
  const auto text = encode(mark, token);
  pollfd ready{STDOUT_FILENO, POLLOUT, 0};
  // A pipe that is writable has room for all of it.
  if (::poll(&ready, 1, static_cast<int>(kMarkPatience.count())) <= 0) return;
  [[maybe_unused]] const auto n = ::write(STDOUT_FILENO, text.data(), text.size());
}

UniqueFd stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&set, signo);
  return UniqueFd{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};  // the guardian blocked them
}

}  // namespace

Result<int> take_descriptor(int fd) {
  constexpr int kFirstFree = 10;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFree);
  if (moved < 0) return system_error(errno, "use descriptor " + std::to_string(fd));
  const UniqueFd nothing{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  if (!nothing || ::dup2(nothing.get(), fd) < 0) return system_error(errno, "open '/dev/null'");
  return moved;
}

Result<LifeLineStart> read_life_line(int fd) {
  LifeLineStart start;
  start.line.fd = fd;
  const Instant until = clock_now() + kStartPatience;
  for (;;) {
    const auto line = read_line(fd, until, "the order to prepare");
    if (!line) return line.error();
    auto order = decode_order(*line);
    if (!order) return order.error();
    if (auto* folder = std::get_if<SetFolder>(&*order)) start.folder = std::move(folder->path);
    if (auto* variable = std::get_if<SetVariable>(&*order)) {
      if (start.variables.size() == kMostVariables)
        return Error{Errc::malformed, "--life_line: too many variables"};
      start.variables.push_back({std::move(variable->name), std::move(variable->value), true});
    }
    if (std::holds_alternative<SendEvents>(*order)) start.line.wants_events = true;
    if (auto* prepare = std::get_if<Prepare>(&*order)) {
      start.line.token = std::move(prepare->token);
      return start;
    }
  }
}

std::optional<int> await_go(const LifeLine& line) {
  write_mark(Prepared{version()}, line.token);
  const Instant until = clock_now() + kGoPatience;
  const auto signals = stop_signals();
  for (;;) {
    pollfd fds[] = {{line.fd, POLLIN, 0}, {signals.get(), POLLIN, 0}};
    const int n = ::poll(fds, std::size(fds), millis_until(until));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return to_int(ExitCode::nodes_missing);
    signalfd_siginfo info{};
    if (fds[1].revents != 0 && ::read(signals.get(), &info, sizeof info) == sizeof info)
      return 128 + static_cast<int>(info.ssi_signo);
    if (fds[0].revents == 0) continue;
    const auto text = read_line(line.fd, until, "the order to start");
    if (!text) return to_int(ExitCode::nodes_missing);  // another host lacks something
    const auto order = decode_order(*text);
    if (!order) {
      std::fprintf(stderr, "acc-launch: %s\n", order.error().what.c_str());
      return to_int(ExitCode::usage);
    }
    if (std::holds_alternative<Go>(*order)) return std::nullopt;
    if (const auto* passed = std::get_if<PassSignal>(&*order)) return 128 + passed->signo;
  }
}

void tell_end(const LifeLine& line, int exit_code) { write_mark(JobEnded{exit_code}, line.token); }

}  // namespace acc::agent
