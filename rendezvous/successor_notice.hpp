#pragma once

#include "common/alive.hpp"
#include "rendezvous/dialer.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>

namespace acc::rendezvous {

/// Tells the process at the job's seed endpoint again and again that the coordinator is here now:
/// otherwise a process restarted there would wait for ever. One loop; ends with this object.
class SuccessorNotice {
 public:
  struct Options {
    DialOptions dial;
    Millis every;
  };
  /// The frame to send over a connection whose own address is `host`.
  using Frame = std::function<std::string(const std::string& host)>;
  SuccessorNotice(boost::asio::io_context& io, Options options, Frame frame);
  SuccessorNotice(const SuccessorNotice&) = delete;
  SuccessorNotice& operator=(const SuccessorNotice&) = delete;
  ~SuccessorNotice() { alive_.end(); }

 private:
  void wait();
  void send();

  boost::asio::io_context& io_;
  Options options_;
  Frame frame_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Dial> dial_;
  Alive alive_;
};

}  // namespace acc::rendezvous
