#include "runtime/shm/messages.hpp"

#include <algorithm>
#include <cstring>

namespace acc::runtime::shm {

Messages::Messages(Peers& peers)
    : peers_{peers},
      sent_(static_cast<std::size_t>(peers.size())),
      received_(static_cast<std::size_t>(peers.size())) {}

void Messages::send(Turn& turn) {
  const Segment& segment = peers_.segment();
  const int to = turn.call.peer;
  Pair& pair = segment.pair(peers_.rank(), to);
  auto& number = sent_[static_cast<std::size_t>(to)];
  const auto* from = static_cast<const std::byte*>(turn.call.send);
  std::size_t left = turn.call.bytes();
  for (bool first = true; first || left > 0; first = false) {
    peers_.await(turn, to, pair.read, Count::room, number + 1 - Layout::kCells);
    std::byte* cell = segment.cell(peers_.rank(), to, number);
    std::size_t room = segment.layout().cell;
    if (first) {
      std::memcpy(cell, &turn.call.what, sizeof(Descriptor));
      cell += sizeof(Descriptor);
      room -= sizeof(Descriptor);
    }
    const auto part = std::min(room, left);
    if (part > 0) std::memcpy(cell, from, part);
    from += part;
    left -= part;
    post(pair.written, ++number * kStep);
  }
}

void Messages::recv(Turn& turn) {
  const Segment& segment = peers_.segment();
  const int from = turn.call.peer;
  Pair& pair = segment.pair(from, peers_.rank());
  auto& number = received_[static_cast<std::size_t>(from)];
  auto* to = static_cast<std::byte*>(turn.call.recv);
  std::size_t left = turn.call.bytes();
  for (bool first = true; first || left > 0; first = false) {
    peers_.await(turn, from, pair.written, Count::message, number + 1);
    const std::byte* cell = segment.cell(from, peers_.rank(), number);
    std::size_t room = segment.layout().cell;
    if (first) {
      Descriptor sent;
      std::memcpy(&sent, cell, sizeof sent);
      check(turn, sent);
      cell += sizeof(Descriptor);
      room -= sizeof(Descriptor);
    }
    const auto part = std::min(room, left);
    if (part > 0) std::memcpy(to, cell, part);
    to += part;
    left -= part;
    post(pair.read, ++number * kStep);
  }
}

// Also when checks are off: a message of another size would be cut or waited for.
void Messages::check(const Turn& turn, const Descriptor& sent) const {
  const Descriptor& wanted = turn.call.what;
  if (sent.count == wanted.count && sent.dtype == wanted.dtype) return;
  const auto& facts = peers_.options().ranks.at(static_cast<std::size_t>(turn.call.peer));
  peers_.fail(turn, Error{ErrorCode::mismatch,
                          peers_.title(turn) + ": " + peers_.describe(turn.call.peer) + " called " +
                              to_string(sent),
                          {facts.rank}});
}

}  // namespace acc::runtime::shm
