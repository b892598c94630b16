#pragma once

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace acc::ctl {

/// A unix socket at which the test itself answers, byte by byte as it likes.
class PlayedService {
 public:
  PlayedService() {
    char folder[] = "/tmp/played-service-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    folder_ = folder;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    listener_ = UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 4) == 0);
  }
  ~PlayedService() {
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  PlayedService(const PlayedService&) = delete;
  PlayedService& operator=(const PlayedService&) = delete;

  [[nodiscard]] std::string path() const { return folder_ + "/s"; }
  /// Takes the connection that a client has made.
  void accept() { connection_ = UniqueFd{::accept(listener_.get(), nullptr, nullptr)}; }
  /// What arrived of its request.
  [[nodiscard]] std::string request() const {
    std::array<char, 4096> text{};
    const auto n = ::recv(connection_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return {text.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  void says(const std::string& text) const {
    REQUIRE(::send(connection_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  }
  /// The header of an answer in chunks, with the bytes of a stream from `from` on.
  void begins_stream(std::uint64_t from) const {
    says("HTTP/1.1 200 OK\r\nX-Acc-From: " + std::to_string(from) +
         "\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  void streams(const std::string& text) const {
    std::array<char, 16> size{};
    std::snprintf(size.data(), size.size(), "%zx\r\n", text.size());
    says(size.data() + text + "\r\n");
  }
  void closes() { connection_.reset(); }

 private:
  std::string folder_;
  UniqueFd listener_;
  UniqueFd connection_;
};

}  // namespace acc::ctl
