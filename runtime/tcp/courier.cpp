#include "runtime/tcp/courier.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::runtime::hosts {

namespace {

/// In one system call: more would keep one socket busy while another could go on.
constexpr std::size_t kAtOnce = 1 << 20;

bool not_now(int errnum) { return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == EINTR; }

}  // namespace

std::size_t receive_some(int fd, std::byte* at, std::size_t bytes, Turn& turn, Lifeline& lifeline,
                         int rank) {
  const auto n = ::recv(fd, at, std::min(bytes, kAtOnce), MSG_DONTWAIT);
  if (n > 0) return static_cast<std::size_t>(n);
  if (n == 0) lifeline.lose(turn, rank, "it closed its connection");
  if (!not_now(errno)) lifeline.lose(turn, rank, std::strerror(errno));
  return 0;
}

std::size_t send_some(int fd, const std::byte* at, std::size_t bytes, Turn& turn,
                      Lifeline& lifeline, int rank) {
  const auto n = ::send(fd, at, std::min(bytes, kAtOnce), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return static_cast<std::size_t>(n);
  if (!not_now(errno)) lifeline.lose(turn, rank, std::strerror(errno));
  return 0;
}

bool Courier::move_in(Turn& turn, std::size_t host) {
  auto& [fd, out, in] = ends_[host];
  bool moved = false;
  while (!in.empty()) {
    auto& piece = in.front();
    const auto n = receive_some(fd.get(), piece.at, piece.bytes, turn, lifeline_, rank_at(host));
    if (n == 0) break;
    moved = true;
    piece.at += n;
    piece.bytes -= n;
    if (piece.bytes == 0) in.pop_front();
  }
  return moved;
}

bool Courier::move_out(Turn& turn, std::size_t host) {
  auto& [fd, out, in] = ends_[host];
  bool moved = false;
  while (!out.empty()) {
    auto& piece = out.front();
    const auto n = send_some(fd.get(), piece.at, piece.bytes, turn, lifeline_, rank_at(host));
    if (n == 0) break;
    moved = true;
    piece.at += n;
    piece.bytes -= n;
    if (piece.bytes == 0) out.pop_front();
  }
  return moved;
}

void Courier::run(Turn& turn, bool all_sent) {
  std::vector<pollfd> waits;
  for (;;) {
    bool moved = false, done = true;
    for (std::size_t h = 0; h < ends_.size(); ++h) {
      moved = move_out(turn, h) || moved;
      moved = move_in(turn, h) || moved;
      done = done && ends_[h].in.empty() && (!all_sent || ends_[h].out.empty());
    }
    if (done) return;
    if (moved) continue;
    waits.clear();
    for (const auto& end : ends_) {
      const int events = (end.in.empty() ? 0 : POLLIN) | (end.out.empty() ? 0 : POLLOUT);
      if (events != 0) waits.push_back({end.fd.get(), static_cast<short>(events), 0});
    }
    lifeline_.wait(turn, waits);
  }
}

}  // namespace acc::runtime::hosts
