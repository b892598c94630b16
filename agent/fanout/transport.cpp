#include "agent/fanout/transport.hpp"

#include "common/passed_signals.hpp"
#include "common/program_path.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include <fcntl.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace acc::agent {

namespace {

/// A job's manager may signal all of its processes: a transport that died of it would leave its
/// host without the order. Ended by a 0.
constexpr auto kPassedThroughLine = [] {
  std::array<int, kPassedSignals.size() + 1> all{};
  std::ranges::copy(kPassedSignals, all.begin());
  return all;
}();

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

int make_pipe(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  pipe.read.reset(ends[0]);
  pipe.write.reset(ends[1]);
  return 0;
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

void wipe(std::string& bytes) {
  ::explicit_bzero(bytes.data(), bytes.size());
  bytes.clear();
}

}  // namespace

int Transport::start(Spawner& spawner, const std::vector<std::string>& command, bool heeds_signals,
                     Pipes& pipes, std::function<void(ExitStatus)> on_exit) {
  const char* const path_variable = std::getenv("PATH");
  const auto path =
      find_on_path(command.front(), path_variable != nullptr ? path_variable : kDefaultPath);
  if (path.empty()) return ENOENT;
  Pipe in;
  Pipe out;
  Pipe err;
  for (auto* pipe : {&in, &out, &err}) {
    if (const int failed = make_pipe(*pipe); failed != 0) return failed;
  }
  set_nonblocking(in.write.get());
  set_nonblocking(out.read.get());
  set_nonblocking(err.read.get());
  const CStringArray argv{command};
  SpawnRequest request;
  request.path = path.c_str();
  request.argv = argv.get();
  request.envp = environ;
  request.stdin_fd = in.read.get();
  request.stdout_fd = out.write.get();
  request.stderr_fd = err.write.get();
  if (!heeds_signals) request.ignored_signals = kPassedThroughLine.data();
  auto spawned = spawner(request);
  if (const auto* failure = std::get_if<SpawnFailure>(&spawned)) return failure->errnum;
  auto& child = std::get<Spawned>(spawned);
  pid_ = child.pid;
  on_exit_ = std::move(on_exit);
  exit_.assign(child.pidfd.release());
  await_exit();
  line_.assign(in.write.release());
  pipes = {std::move(out.read), std::move(err.read)};
  return 0;
}

// Asio may tell of an exit that hasn't happened (common/poll_now.hpp).
void Transport::await_exit() {
  exit_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   alive_.bind([this](boost::system::error_code error) {
                     if (!error && !reap()) await_exit();
                   }));
}

bool Transport::reap() {
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = 0;
  boost::system::error_code ignored;
  exit_.close(ignored);
  // Before acc-launch on the host sees the end of its life line, and speaks of it.
  on_exit_(exit_status_from_wait(status));
  line_.close(ignored);
  return true;
}

void Transport::send(std::string bytes) {
  if (!line_.is_open() || is_closing_) return wipe(bytes);
  queued_ += bytes;
  wipe(bytes);
  if (writing_.empty()) write_next();
}

void Transport::write_next() {
  writing_ = std::move(queued_);
  queued_.clear();
  boost::asio::async_write(line_, boost::asio::buffer(writing_),
                           alive_.bind([this](boost::system::error_code error, std::size_t) {
                             wipe(writing_);
                             boost::system::error_code ignored;
                             // A transport that reads no more is about to exit.
                             if (error) {
                               wipe(queued_);
                               line_.close(ignored);
                             } else if (!queued_.empty()) {
                               write_next();
                             } else if (is_closing_) {
                               line_.close(ignored);
                             }
                           }));
}

void Transport::close_line() {
  is_closing_ = true;
  boost::system::error_code ignored;
  if (writing_.empty()) line_.close(ignored);
}

void Transport::kill() const {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

}  // namespace acc::agent
