#pragma once

#include "runtime/net/sockets.hpp"

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <stdexcept>
#include <string>
#include <thread>

namespace acc::testing {

/// A port of loopback that leads to another one as over a long line: bytes and ends of connections
/// arrive `delay` later, in each direction. (A connection itself is there at once.)
class SlowRelay {
 public:
  using Clock = std::chrono::steady_clock;

  SlowRelay(std::uint16_t to, std::chrono::milliseconds delay)
      : to_{*runtime::SocketAddress::numeric("127.0.0.1", to)}, delay_{delay} {
    auto listener = runtime::listen_at(*runtime::SocketAddress::numeric("127.0.0.1", 0), 64);
    if (!listener) throw std::runtime_error{listener.error().what};
    listener_ = *std::move(listener);
    thread_ = std::thread{[this] { run(); }};
  }
  ~SlowRelay() {
    stop_ = true;
    thread_.join();
  }
  SlowRelay(const SlowRelay&) = delete;
  SlowRelay& operator=(const SlowRelay&) = delete;

  [[nodiscard]] std::uint16_t port() const {
    return runtime::local_address(listener_.get()).port();
  }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  struct Chunk {
    Clock::time_point due;
    std::string bytes;  ///< empty: the end
  };
  struct Direction {
    std::deque<Chunk> chunks;
    bool has_ended = false;
  };
  struct Line {
    UniqueFd near, far;
    Direction there, back;
  };

  void run() {
    while (!stop_) {
      for (auto line = lines_.begin(); line != lines_.end();) {
        const bool there = pass(line->near, line->far, line->there);
        const bool back = pass(line->far, line->near, line->back);
        line = there && back ? std::next(line) : lines_.erase(line);
      }
      if (auto near = runtime::accept_from(listener_.get())) {
        ++connections_;
        auto far = runtime::connect_to(to_, Clock::now() + std::chrono::seconds{5});
        if (far) lines_.push_back({*std::move(near), *std::move(far), {}, {}});
      }
      ::poll(nullptr, 0, 1);
    }
  }

  /// @return false: its end has been passed on
  bool pass(const UniqueFd& from, const UniqueFd& to, Direction& way) const {
    char bytes[65536];
    ssize_t n = 1;
    while (!way.has_ended && (n = ::recv(from.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
      way.chunks.push_back({Clock::now() + delay_, {bytes, static_cast<std::size_t>(n)}});
    if (!way.has_ended && (n == 0 || (errno != EAGAIN && errno != EINTR))) {
      way.has_ended = true;
      way.chunks.push_back({Clock::now() + delay_, {}});
    }
    for (; !way.chunks.empty() && way.chunks.front().due <= Clock::now(); way.chunks.pop_front()) {
      const auto& chunk = way.chunks.front().bytes;
      if (chunk.empty()) return false;
      if (!runtime::send_all(to.get(), runtime::bytes_of(chunk),
                             Clock::now() + std::chrono::seconds{5}))
        return false;
    }
    return true;
  }

  runtime::SocketAddress to_;
  std::chrono::milliseconds delay_;
  UniqueFd listener_;
  std::list<Line> lines_;
  std::atomic<int> connections_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace acc::testing
