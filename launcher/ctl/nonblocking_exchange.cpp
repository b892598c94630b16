#include "launcher/ctl/nonblocking_exchange.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace acc::ctl {

Result<std::unique_ptr<NonblockingExchange>> NonblockingExchange::begin(
    const std::string& socket, const HttpRequest& request) {
  auto fd = connect_to(socket);
  if (!fd) return fd.error();
  return std::unique_ptr<NonblockingExchange>{
      new NonblockingExchange{std::move(*fd), encode(request)}};
}

NonblockingExchange::NonblockingExchange(UniqueFd fd, std::string request)
    : fd_{std::move(fd)}, unsent_{std::move(request)} {}

short NonblockingExchange::wants() const { return unsent_.empty() ? POLLIN : POLLIN | POLLOUT; }

unsigned NonblockingExchange::status() const {
  return response_.has_header() ? response_.status() : 0;
}

Received NonblockingExchange::receive(std::string& into) {
  if (!unsent_.empty() && !send_some()) return Received::lost;
  std::array<char, kChunk> chunk;
  const auto n = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Received::nothing;
  if (n <= 0) {
    const bool is_whole = n == 0 && response_.end();
    into = response_.take_body();
    return is_whole ? Received::end : Received::lost;
  }
  if (!response_.feed({chunk.data(), static_cast<std::size_t>(n)})) return Received::lost;
  into = response_.take_body();
  if (response_.is_done()) return Received::end;
  return into.empty() ? Received::nothing : Received::data;
}

bool NonblockingExchange::send_some() {
  const auto n = ::send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const bool has_closed = n < 0 && (errno == EPIPE || errno == ECONNRESET);
  if (has_closed) unsent_.clear();  // its answer may be there: a refusal
  if (n < 0) return has_closed || errno == EAGAIN || errno == EINTR;
  unsent_.erase(0, static_cast<std::size_t>(n));
  return true;
}

}  // namespace acc::ctl
