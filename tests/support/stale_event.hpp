#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <utility>

namespace acc::test {

/// Two pipes that are readable in one turn of the loop; the handler of the first closes the second,
/// whose queued event then hits the next descriptor that is opened (common/poll_now.hpp).
class StaleEvent {
 public:
  explicit StaleEvent(boost::asio::io_context& io) : io_{io}, ends_{open(0), open(1)} {}
  ~StaleEvent() {
    for (const int fd : writers_) ::close(fd);
  }
  StaleEvent(const StaleEvent&) = delete;
  StaleEvent& operator=(const StaleEvent&) = delete;

  /// Runs the loop until it is idle; `begin` is called where what it opens gets the event.
  void hit(std::function<void()> begin) {
    for (int i = 0; i < 2; ++i) {
      ends_[i].async_wait(Descriptor::wait_read, [this, i, begin](boost::system::error_code error) {
        if (error || std::exchange(was_hit_, true)) return;
        ends_[1 - i].close();
        begin();
      });
    }
    io_.restart();
    io_.poll();
    if (!was_hit_) throw std::logic_error{"neither pipe was readable"};
  }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  Descriptor open(int index) {
    int ends[2];
    if (::pipe(ends) != 0 || ::write(ends[1], "x", 1) != 1) throw std::runtime_error{"pipe"};
    writers_[index] = ends[1];
    return Descriptor{io_, ends[0]};
  }

  boost::asio::io_context& io_;
  int writers_[2] = {-1, -1};
  Descriptor ends_[2];
  bool was_hit_ = false;
};

}  // namespace acc::test
