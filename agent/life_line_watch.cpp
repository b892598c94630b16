#include "agent/life_line_watch.hpp"

#include "agent/fanout/orders.hpp"

#include <boost/asio/buffer.hpp>

#include <utility>

namespace acc::agent {

LifeLineWatch::LifeLineWatch(boost::asio::io_context& io, int fd,
                             std::function<void(int)> on_signal, std::function<void()> on_ask,
                             std::function<void(const std::string&)> on_end)
    : line_{io, fd},
      on_signal_{std::move(on_signal)},
      on_ask_{std::move(on_ask)},
      on_end_{std::move(on_end)} {
  read();
}

void LifeLineWatch::read() {
  line_.async_read_some(boost::asio::buffer(buffer_),
                        alive_.bind([this](boost::system::error_code error, std::size_t bytes) {
                          if (error) return end("its connection to the launching host was closed");
                          take(bytes);
                        }));
}

void LifeLineWatch::take(std::size_t bytes) {
  held_.append(buffer_, bytes);
  for (auto newline = held_.find('\n'); newline != std::string::npos; newline = held_.find('\n')) {
    const auto order = decode_order(std::string_view{held_}.substr(0, newline));
    held_.erase(0, newline + 1);
    if (!order) return end(order.error().what);
    const Alive::Watch watch = alive_.watch();
    if (const auto* passed = std::get_if<PassSignal>(&*order)) on_signal_(passed->signo);
    if (!watch.is_alive()) return;
    if (std::holds_alternative<AskContact>(*order)) on_ask_();
  }
  if (held_.size() > kMaxOrder) return end("its life line brought a line without an end");
  read();
}

void LifeLineWatch::end(const std::string& why) {
  boost::system::error_code ignored;
  line_.close(ignored);
  on_end_(why);
}

}  // namespace acc::agent
