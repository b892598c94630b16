#include "runtime/tcp/socket_mux.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::runtime::tcp {

namespace {

/// Bytes per system call: more would occupy one socket while another could proceed.
constexpr std::size_t kAtOnce = 1 << 20;

bool not_now(int errnum) { return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == EINTR; }

}  // namespace

std::size_t receive_some(int fd, std::byte* at, std::size_t bytes, ActiveCall& active,
                         AbortableWait& abortable, int rank) {
  const auto n = ::recv(fd, at, std::min(bytes, kAtOnce), MSG_DONTWAIT);
  if (n > 0) return static_cast<std::size_t>(n);
  if (n == 0) abortable.lose(active, rank, "it closed its connection");
  if (!not_now(errno)) abortable.lose(active, rank, std::strerror(errno));
  return 0;
}

std::size_t send_some(int fd, const std::byte* at, std::size_t bytes, ActiveCall& active,
                      AbortableWait& abortable, int rank) {
  const auto n = ::send(fd, at, std::min(bytes, kAtOnce), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return static_cast<std::size_t>(n);
  if (!not_now(errno)) abortable.lose(active, rank, std::strerror(errno));
  return 0;
}

void SocketMux::require_open(ActiveCall& active) {
  for (std::size_t h = 0; h < ends_.size(); ++h)
    if (ends_[h].fd && !ends_[h].fd.is_ours()) abortable_.lose_own(active, rank_at(h));
}

bool SocketMux::move_in(ActiveCall& active, std::size_t host) {
  auto& [fd, out, in] = ends_[host];
  bool moved = false;
  while (!in.empty()) {
    auto& piece = in.front();
    const auto n = receive_some(fd.get(), piece.at, piece.bytes, active, abortable_, rank_at(host));
    if (n == 0) break;
    moved = true;
    piece.at += n;
    piece.bytes -= n;
    if (piece.bytes == 0) in.pop_front();
  }
  return moved;
}

bool SocketMux::move_out(ActiveCall& active, std::size_t host) {
  auto& [fd, out, in] = ends_[host];
  bool moved = false;
  while (!out.empty()) {
    auto& piece = out.front();
    const auto n = send_some(fd.get(), piece.at, piece.bytes, active, abortable_, rank_at(host));
    if (n == 0) break;
    moved = true;
    piece.at += n;
    piece.bytes -= n;
    if (piece.bytes == 0) out.pop_front();
  }
  return moved;
}

void SocketMux::finish(ActiveCall& active) {
  std::vector<pollfd> waits;
  for (;;) {
    bool moved = false, done = true;
    for (std::size_t h = 0; h < ends_.size(); ++h) {
      moved = move_out(active, h) || moved;
      moved = move_in(active, h) || moved;
      done = done && ends_[h].in.empty() && ends_[h].out.empty();
    }
    if (done) return;
    if (moved) continue;
    waits.clear();
    for (const auto& end : ends_) {
      const int events = (end.in.empty() ? 0 : POLLIN) | (end.out.empty() ? 0 : POLLOUT);
      if (events != 0) waits.push_back({end.fd.get(), static_cast<short>(events), 0});
    }
    abortable_.wait(active, waits);
  }
}

}  // namespace acc::runtime::tcp
