#pragma once

#include "rendezvous/codec.hpp"
#include "rendezvous/dialer.hpp"
#include "rendezvous/listener.hpp"
#include "rendezvous/secret.hpp"

#include <boost/asio/io_context.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

/// What the tests of sockets share: a loop that runs until something has happened, secrets, frames.
namespace acc::rendezvous::test {

using namespace std::chrono_literals;

struct Loop {
  boost::asio::io_context io{1};

  /// Runs until `happened` or the deadline. @return what `happened` says in the end
  template <class Condition>
  bool until(Condition happened, Millis limit = 5s) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!happened()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= 0ms) return happened();
      io.restart();
      io.run_one_for(std::min<Instant::duration>(left, 20ms));
    }
    return true;
  }
};

inline Secret secret(const std::string& text = "0123456789abcdef0123456789abcdef",
                     const std::string& id = "") {
  const JobKey digest = hkdf_sha256(text, "", "acc-key-id/1");
  char hex[9];
  std::snprintf(hex, sizeof hex, "%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
  return {"/etc/acc/secret", {{id.empty() ? hex : id, SecretBytes{text}}}};
}

inline std::string heartbeat(std::uint32_t number = 1) {
  return encode({}, Heartbeat{.heartbeat = number});
}
inline std::string notice(std::size_t size) {
  return encode({}, KvRestore{.key = "k", .value = std::string(size, 'x')});
}

/// A folder that goes with the test.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "acc-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
};

/// What one end of a connection saw.
struct Seen {
  std::shared_ptr<Channel> channel;
  std::vector<std::string> frames;
  std::vector<Closed> closed;
  bool is_open = false;

  Channel::Handlers handlers() {
    return {.on_open = [this] { is_open = true; },
            .on_frame = [this](std::string_view frame) { frames.emplace_back(frame); },
            .on_closed = [this](const Closed& c) { closed.push_back(c); }};
  }
};

inline std::pair<UniqueFd, UniqueFd> socket_pair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  return {UniqueFd{fds[0]}, UniqueFd{fds[1]}};
}

/// A listener that keeps everybody who comes, and answers nothing.
struct Host {
  std::shared_ptr<Listener> listener;
  std::vector<std::unique_ptr<Seen>> peers;
  std::vector<TurnedAway> turned_away;

  Host(Loop& loop, ListenOptions options) {
    auto opened = Listener::open(loop.io, std::move(options));
    if (!opened) throw std::runtime_error{opened.error().what};
    listener = std::move(*opened);
    listener->start(
        [this](std::shared_ptr<Channel> channel, std::string_view frame) {
          auto seen = std::make_unique<Seen>();
          seen->frames.emplace_back(frame);
          seen->channel = std::move(channel);
          seen->channel->start(seen->handlers());
          peers.push_back(std::move(seen));
        },
        [this](const TurnedAway& who) { turned_away.push_back(who); });
  }
  [[nodiscard]] HostPort at() const { return listener->at(); }
};

inline ListenOptions plain_at(std::string host = "127.0.0.1") {
  ListenOptions options;
  options.at = {std::move(host), 0};
  return options;
}
inline ListenOptions tls_at(const Secret& with, std::string host = "127.0.0.1") {
  auto options = plain_at(std::move(host));
  options.tls = TlsContext::for_listening(with);
  return options;
}
inline DialOptions dial_to(const HostPort& to) {
  DialOptions options;
  options.to = to;
  return options;
}
inline DialOptions dial_to(const HostPort& to, const Secret& with, const std::string& job = "job") {
  auto options = dial_to(to);
  options.tls = TlsContext::for_dialling(with, job);
  return options;
}

/// A dialler that says its first frame as soon as it is through.
struct Guest : Seen {
  std::shared_ptr<Dial> attempt;
  std::vector<DialError> failures;

  Guest(Loop& loop, DialOptions options, std::string first = heartbeat()) {
    attempt = dial(loop.io, std::move(options), [this, first](Dialled dialled) {
      if (!dialled) return failures.push_back(dialled.error());
      channel = *dialled;
      channel->start(handlers());
      channel->send(first);
    });
  }
  [[nodiscard]] bool is_through() const { return channel != nullptr; }
  [[nodiscard]] bool has_failed() const { return !failures.empty(); }
};

/// A socket that speaks by hand.
struct Stranger {
  UniqueFd fd;
  explicit Stranger(const HostPort& to, const std::string& says = {}) {
    const auto address = boost::asio::ip::make_address(to.host);
    const boost::asio::ip::tcp::endpoint at{address, to.port};
    fd.reset(::socket(at.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), at.data(), static_cast<socklen_t>(at.size())) != 0)
      throw std::runtime_error{"stranger: connect"};
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    say(says);
  }
  bool say(const std::string& bytes) {
    return ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  /// What has come; `is_gone` when the other side has closed.
  std::string hear() {
    char buffer[4096];
    const auto n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    is_gone = is_gone || n == 0 || (n < 0 && errno != EAGAIN);
    return n > 0 ? std::string{buffer, static_cast<std::size_t>(n)} : std::string{};
  }
  bool is_gone = false;
};

}  // namespace acc::rendezvous::test
