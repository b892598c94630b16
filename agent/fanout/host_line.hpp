#pragma once

#include "agent/fanout/contact_watch.hpp"
#include "agent/fanout/host_stream.hpp"
#include "agent/fanout/transport.hpp"
#include "agent/output/destinations.hpp"
#include "agent/output/pump.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

/// What connects us with one host: its transport, and the two streams that come through it.
class HostLine {
 public:
  struct Settings {
    std::vector<std::string> command;  ///< of the transport
    bool heeds_signals = false;        ///< the transport is acc-launch itself, on this machine
    std::string prefix;                ///< before each line of output; empty: none
    std::string token;                 ///< of the marks
    HostStream::OnMark on_mark;        ///< in standard output
    HostStream::OnMark on_event;       ///< in standard error; empty: it has no marks
  };

  /// @param pump, destinations  outlive it
  HostLine(boost::asio::io_context& io, Pump& pump, Destinations& destinations)
      : transport_{io}, pump_{pump}, destinations_{destinations} {}

  /// @param on_exit  once, on the loop, when all that came has been taken
  /// @return errno; 0: the transport runs
  int start(Spawner& spawner, Settings settings, std::function<void(ExitStatus)> on_exit);

  /// Standard error that was held back is passed on, and all that follows.
  void open() { err_->open(); }
  void send(std::string orders) { transport_.send(std::move(orders)); }
  void close() { transport_.close_line(); }
  void kill() const { transport_.kill(); }
  /// Of standard error, for a message.
  [[nodiscard]] std::string last_words() const { return err_->tail(); }

  /// Asks the host for an answer when it has been silent, from now on.
  void watch_contact() { contact_.emplace(clock_now()); }
  void answered();
  /// Nothing: it isn't watched.
  [[nodiscard]] std::optional<ContactWatch::Finding> look_for_contact();

  std::vector<OutputLost> lost;  ///< of its output, as its daemon tells

 private:
  void take_last_output();

  Transport transport_;
  Pump& pump_;
  Destinations& destinations_;
  std::unique_ptr<HostStream> out_;
  std::unique_ptr<HostStream> err_;
  std::shared_ptr<Pump::Reader> out_reader_;
  std::shared_ptr<Pump::Reader> err_reader_;
  int out_fd_ = -1;  ///< of the readers, which own them
  int err_fd_ = -1;
  std::optional<ContactWatch> contact_;  ///< of a running job, without a daemon
};

}  // namespace acc::agent
