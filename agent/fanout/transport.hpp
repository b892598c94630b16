#pragma once

#include "agent/spawn.hpp"
#include "common/alive.hpp"
#include "common/exit_status.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

/// The process that connects us with one host: ssh or another program. Its standard input is the
/// life line of acc-launch there.
class Transport {
 public:
  /// Pipes of a transport that runs; the caller reads them.
  struct Pipes {
    UniqueFd out;
    UniqueFd err;
  };

  explicit Transport(boost::asio::io_context& io) : exit_{io}, line_{io} {}

  /// @param heeds_signals  false: it ignores those that are passed on through the life line
  /// @param on_exit  once, on the loop; the pipes then hold all that it wrote, and the life line is
  /// still open. It must not destroy the transport.
  /// @return errno; 0: it runs
  int start(Spawner& spawner, const std::vector<std::string>& command, bool heeds_signals,
            Pipes& pipes, std::function<void(ExitStatus)> on_exit);
  /// Bytes for its standard input; wiped from memory when they are written.
  void send(std::string bytes);
  void close_line();
  void kill() const;
  [[nodiscard]] bool is_running() const { return pid_ > 0; }

 private:
  void write_next();
  void await_exit();
  /// False: it still runs.
  bool reap();

  boost::asio::posix::stream_descriptor exit_;  // the pidfd
  boost::asio::posix::stream_descriptor line_;
  pid_t pid_ = 0;
  std::function<void(ExitStatus)> on_exit_;
  std::string writing_;
  std::string queued_;
  bool is_closing_ = false;
  Alive alive_;
};

}  // namespace acc::agent
