#include "runtime/selftest/pair_probe.hpp"

#include "common/text.hpp"
#include "runtime/quiet_thread.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace acc::selftest {

using runtime::Deadline;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kChunk = 256 * 1024;
constexpr std::size_t kMostPings = 500;
constexpr runtime::Millis kGreetingLimit{1000};  ///< a stranger may keep silent for so long
constexpr runtime::Millis kBeganLater{200};      ///< the two nodes don't begin at one moment

/// The first bytes of a connection. Nodes of one job have one byte order.
struct Greeting {
  std::array<char, kTokenBytes> token{};
  std::uint32_t round = 0;
  std::uint32_t from = 0;
  std::uint32_t purpose = 0;
  std::uint32_t reserved = 0;
};
constexpr std::uint32_t kControl = 0;  // further ones are streams: 1 to the higher node, 2 back

/// What the lower node asks of the higher one, or its answer.
struct Frame {
  enum Kind : std::uint64_t { begin, ping, stream, rate, done };
  std::uint64_t kind = 0;
  std::uint64_t value = 0;
};

template <class T>
std::span<std::byte> bytes_of_value(T& value) {
  return std::as_writable_bytes(std::span{&value, 1});
}

struct Failed {
  std::string what;
};

void require(const Result<void>& result) {
  if (!result) throw Failed{result.error().what};
}

double micros(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

class Probe {
 public:
  Probe(const UniqueFd& listener, const std::string& token, const ProbeTarget& target,
        const ProbeTimes& times)
      : listener_{listener}, token_{token}, target_{target}, times_{times} {}

  ProbeResult run() {
    ProbeResult result;
    auto [out, in] = open_both(result.refused);
    try {
      if (is_low())
        measure(std::move(out), std::move(in), result);
      else
        answer(std::move(out), std::move(in));
    } catch (const Failed& failed) {
      result.failure = failed.what;
    }
    return result;
  }

 private:
  [[nodiscard]] bool is_low() const { return target_.me < target_.other; }
  [[nodiscard]] Deadline soon() const { return Clock::now() + times_.limit; }

  struct Both {
    UniqueFd out, in;
  };
  /// Each opens a connection to the other at the same time.
  Both open_both(std::string& refused) {
    const auto deadline = soon();
    Both both;
    auto opening = runtime::quiet_thread([&] {
      auto opened = open(kControl, deadline);
      if (opened)
        both.out = std::move(*opened);
      else
        refused = opened.error().what;
    });
    auto taken = take(kControl, deadline + kBeganLater);
    if (taken) both.in = std::move(*taken);
    opening.join();
    return both;
  }

  /// A connection counts once the other node has answered.
  Result<UniqueFd> open(std::uint32_t purpose, Deadline deadline) {
    auto fd = runtime::connect_to(target_.address, deadline);
    if (!fd) return fd.error();
    send_at_once(fd->get());
    Greeting greeting;
    std::memcpy(greeting.token.data(), token_.data(), std::min(token_.size(), kTokenBytes));
    greeting.round = static_cast<std::uint32_t>(target_.round);
    greeting.from = static_cast<std::uint32_t>(target_.me);
    greeting.purpose = purpose;
    if (auto sent = runtime::send_all(fd->get(), bytes_of_value(greeting), deadline); !sent)
      return sent.error();
    std::byte yes{};
    if (auto got = runtime::receive_all(fd->get(), {&yes, 1}, deadline); !got) {
      return Error{
          got.error().code,
          target_.address.text() + " took the connection and didn't answer: " + got.error().what};
    }
    return fd;
  }

  /// The other node's connection for this purpose; others are closed.
  Result<UniqueFd> take(std::uint32_t purpose, Deadline deadline) {
    for (;;) {
      if (auto came = runtime::await(listener_.get(), POLLIN, deadline); !came) return came.error();
      auto fd = runtime::accept_from(listener_.get());
      if (!fd) {
        if (fd.error().code == Errc::not_found) continue;
        return fd.error();
      }
      Greeting greeting;
      const auto limit = std::min<Deadline>(deadline, Clock::now() + kGreetingLimit);
      if (!runtime::receive_all(fd->get(), bytes_of_value(greeting), limit)) continue;
      if (std::string_view{greeting.token.data(), kTokenBytes} != token_ ||
          greeting.round != static_cast<std::uint32_t>(target_.round) ||
          greeting.from != static_cast<std::uint32_t>(target_.other) || greeting.purpose != purpose)
        continue;
      send_at_once(fd->get());
      const std::byte yes{1};
      if (auto sent = runtime::send_all(fd->get(), {&yes, 1}, deadline); !sent) return sent.error();
      return fd;
    }
  }

  // ---- the lower node asks ----

  void measure(UniqueFd out, UniqueFd in, ProbeResult& result) {
    opens_streams_ = static_cast<bool>(out);
    const auto control = std::move(out ? out : in);
    if (!control) return;  // why is in `refused` of both
    tell(control.get(), {Frame::begin, opens_streams_ ? 1U : 0U});
    result.rtt_us = ping(control.get());
    result.mbit_to_high = stream(control.get(), true);
    result.mbit_to_low = stream(control.get(), false);
    tell(control.get(), {Frame::done, 0});
  }

  double ping(int control) {
    const auto end = Clock::now() + times_.pings;
    double least = 0;
    for (std::size_t i = 0; i < kMostPings && (i < 3 || Clock::now() < end); ++i) {
      const auto began = Clock::now();
      tell(control, {Frame::ping, i});
      const auto echo = hear(control);
      if (echo.kind != Frame::ping || echo.value != i) throw Failed{"a wrong answer came"};
      const auto took = micros(Clock::now() - began);
      least = i == 0 ? took : std::min(least, took);
    }
    return least;
  }

  double stream(int control, bool to_high) {
    tell(control, {Frame::stream, to_high ? 1U : 2U});
    if (!to_high) return receive_stream(2);
    send_stream(1);
    const auto answer = hear(control);
    if (answer.kind != Frame::rate) throw Failed{"a wrong answer came"};
    return std::bit_cast<double>(answer.value);
  }

  // ---- the higher node answers ----

  void answer(UniqueFd out, UniqueFd in) {
    if (!out && !in) return;  // the lower node knows it, too
    const auto control = first_with_data(std::move(out), std::move(in));
    if (!control) return;
    for (;;) {
      const auto frame = hear(control.get());
      if (frame.kind == Frame::ping) {
        tell(control.get(), frame);
      } else if (frame.kind == Frame::begin) {
        opens_streams_ = frame.value == 0;
      } else if (frame.kind == Frame::stream && frame.value == 1) {
        tell(control.get(), {Frame::rate, std::bit_cast<std::uint64_t>(receive_stream(1))});
      } else if (frame.kind == Frame::stream) {
        send_stream(2);
      } else {
        return;
      }
    }
  }

  /// The lower node chooses the connection, once it has waited to the end for one that this node
  /// may not be able to open. It may have begun later, and then has its whole wait before it.
  [[nodiscard]] UniqueFd first_with_data(UniqueFd out, UniqueFd in) const {
    std::array<pollfd, 2> wait{pollfd{out.get(), POLLIN, 0}, pollfd{in.get(), POLLIN, 0}};
    const auto deadline = soon() + times_.limit + kBeganLater;
    for (;;) {
      const int ready = ::poll(wait.data(), wait.size(), runtime::poll_time(deadline));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return UniqueFd{};
      // The one that isn't chosen is closed by the other side, perhaps before.
      for (auto& one : wait) {
        if ((one.revents & POLLIN) == 0) continue;
        std::byte peeked{};
        if (::recv(one.fd, &peeked, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
          return std::move(one.fd == out.get() ? out : in);
        one.fd = -1;
      }
      for (auto& one : wait)
        if ((one.revents & (POLLERR | POLLHUP)) != 0) one.fd = -1;
      if (wait[0].fd < 0 && wait[1].fd < 0) return UniqueFd{};
    }
  }

  // ---- both ----

  void tell(int control, Frame frame) {
    require(runtime::send_all(control, bytes_of_value(frame), soon()));
  }
  Frame hear(int control) {
    Frame frame;
    // While the other side opens a stream, waits for its first bytes and measures.
    require(runtime::receive_all(control, bytes_of_value(frame),
                                 soon() + times_.limit + times_.stream));
    return frame;
  }

  UniqueFd open_stream(std::uint32_t purpose) {
    auto fd = opens_streams_ ? open(purpose, soon()) : take(purpose, soon());
    if (!fd) throw Failed{fd.error().what};
    return std::move(*fd);
  }

  /// Until the receiver has seen enough and closes.
  void send_stream(std::uint32_t purpose) {
    const auto fd = open_stream(purpose);
    const std::vector<std::byte> chunk(kChunk);
    const auto deadline = soon() + times_.stream;
    while (Clock::now() < deadline) {
      const auto sent = ::send(fd.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0 || errno == EINTR) continue;
      if (errno != EAGAIN) return;  // it was closed
      if (!runtime::await(fd.get(), POLLOUT, deadline)) return;
    }
  }

  /// Mbit/s, from the first byte on, without the first fifth, in which the sender feels its way.
  double receive_stream(std::uint32_t purpose) {
    const auto fd = open_stream(purpose);
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kChunk);
    const auto silent = soon();
    if (!runtime::await(fd.get(), POLLIN, silent)) return 0;
    const auto first = Clock::now();
    const auto warm = first + times_.stream / 5;
    const auto end = first + times_.stream;
    std::uint64_t all = 0, before = 0;
    auto begun = first;
    for (auto now = first; now < end; now = Clock::now()) {
      const auto got = ::recv(fd.get(), buffer.get(), kChunk, MSG_DONTWAIT);
      if (got == 0) break;
      if (got < 0 && errno == EAGAIN) {
        if (!runtime::await(fd.get(), POLLIN, end)) break;
        continue;
      }
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      all += static_cast<std::uint64_t>(got);
      if (Clock::now() < warm) {
        before = all;
        begun = Clock::now();
      }
    }
    if (all == before) {  // so little that all of it came at the beginning
      before = 0;
      begun = first;
    }
    const auto took = micros(Clock::now() - begun);
    return took > 0 ? static_cast<double>(all - before) * 8 / took : 0;
  }

  const UniqueFd& listener_;
  const std::string& token_;
  const ProbeTarget& target_;
  const ProbeTimes& times_;
  bool opens_streams_ =
      false;  ///< this side opens what is measured: the other one may not be able to
};

}  // namespace

ProbeResult probe_pair(const UniqueFd& listener, const std::string& token,
                       const ProbeTarget& target, const ProbeTimes& times) {
  return Probe{listener, token, target, times}.run();
}

}  // namespace acc::selftest
