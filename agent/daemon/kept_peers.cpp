#include "agent/daemon/kept_peers.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace acc::agent::daemon {

namespace {

constexpr Millis kKeptFor{2'000};

/// What comes unasked is its end.
bool is_quiet(PeerStream& stream) {
  char byte = 0;
  return ::recv(stream.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace

std::unique_ptr<PeerStream> KeptPeers::take(const std::string& line, const Tls& tls,
                                            RequestKind kind) {
  for (auto it = kept_.begin(); it != kept_.end();) {
    const bool is_for_others = kind == RequestKind::stream && it->stream->holds_share();
    if (it->line != line || is_for_others) {
      ++it;
      continue;
    }
    auto found = std::move(*it);
    it = kept_.erase(it);
    if (is_quiet(*found.stream) && found.tls == tls) return std::move(found.stream);
    found.stream->close();
  }
  return nullptr;
}

void KeptPeers::keep(const std::string& line, const Tls& tls, std::unique_ptr<PeerStream> stream) {
  if (!kept_.empty() && kept_.size() >= most_) {
    kept_.front().stream->close();
    kept_.erase(kept_.begin());
  }
  kept_.push_back({line, tls, std::move(stream), clock_now() + kKeptFor});
  if (kept_.size() == 1) close_old();
}

// Of those whose time is over; sets the timer for the next one.
void KeptPeers::close_old() {
  while (!kept_.empty() && kept_.front().until <= clock_now()) {
    kept_.front().stream->close();
    kept_.erase(kept_.begin());
  }
  if (kept_.empty()) return;
  timer_.expires_at(kept_.front().until);
  timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) close_old();
  }));
}

}  // namespace acc::agent::daemon
