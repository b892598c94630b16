#pragma once

#include "common/alive.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <string>

namespace acc::agent {

/// Reads the life line of a running job: signals to pass on, and its end.
class LifeLineWatch {
 public:
  /// @param fd  becomes the watch's
  /// @param on_ask  the launching host wants to hear from us
  /// @param on_end  once: the other side is gone, or sent what is no order
  LifeLineWatch(boost::asio::io_context& io, int fd, std::function<void(int)> on_signal,
                std::function<void()> on_ask, std::function<void(const std::string& why)> on_end);

 private:
  void read();
  void take(std::size_t bytes);
  void end(const std::string& why);

  boost::asio::posix::stream_descriptor line_;
  std::function<void(int)> on_signal_;
  std::function<void()> on_ask_;
  std::function<void(const std::string&)> on_end_;
  char buffer_[512];
  std::string held_;
  Alive alive_;
};

}  // namespace acc::agent
