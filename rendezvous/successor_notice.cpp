#include "rendezvous/successor_notice.hpp"

#include <utility>

namespace acc::rendezvous {

SuccessorNotice::SuccessorNotice(boost::asio::io_context& io, Options options, Frame frame)
    : io_{io}, options_{std::move(options)}, frame_{std::move(frame)}, timer_{io} {
  wait();
}

void SuccessorNotice::wait() {
  timer_.expires_after(options_.every);
  timer_.async_wait(alive_.bind([this](boost::system::error_code error) {
    if (!error) send();
  }));
}

void SuccessorNotice::send() {
  dial_ = dial(io_, options_.dial, [this](Dialled dialled) {
    const auto finished = std::exchange(dial_, nullptr);
    if (dialled.has_value()) {
      const auto& channel = *dialled;
      channel->start({});
      channel->send(frame_(channel->local().host));
      channel->close();
    }
    wait();
  });
}

}  // namespace acc::rendezvous
