#include "runtime/shm/messages.hpp"

#include <algorithm>
#include <cstring>

namespace acc::runtime::shm {

Messages::Messages(Peers& peers)
    : peers_{peers},
      sent_(static_cast<std::size_t>(peers.size())),
      received_(static_cast<std::size_t>(peers.size())) {}

void Messages::send(ActiveCall& active) {
  const Segment& segment = peers_.segment();
  const int to = active.call.peer;
  Pair& pair = segment.pair(peers_.rank(), to);
  auto& number = sent_[static_cast<std::size_t>(to)];
  const auto* from = static_cast<const std::byte*>(active.call.send);
  std::size_t left = active.call.bytes();
  for (bool first = true; first || left > 0; first = false) {
    peers_.await(active, to, pair.read, Count::space, number + 1 - Layout::kCells);
    std::byte* cell = segment.cell(peers_.rank(), to, number);
    std::size_t space = segment.layout().cell;
    if (first) {
      std::memcpy(cell, &active.call.what, sizeof(Descriptor));
      cell += sizeof(Descriptor);
      space -= sizeof(Descriptor);
    }
    const auto part = std::min(space, left);
    if (part > 0) std::memcpy(cell, from, part);
    from += part;
    left -= part;
    post(pair.written, ++number * kStep);
  }
  peers_.message_done(active);
}

void Messages::recv(ActiveCall& active) {
  const Segment& segment = peers_.segment();
  const int from = active.call.peer;
  Pair& pair = segment.pair(from, peers_.rank());
  auto& number = received_[static_cast<std::size_t>(from)];
  auto* to = static_cast<std::byte*>(active.call.recv);
  std::size_t left = active.call.bytes();
  for (bool first = true; first || left > 0; first = false) {
    peers_.await(active, from, pair.written, Count::message, number + 1);
    const std::byte* cell = segment.cell(from, peers_.rank(), number);
    std::size_t space = segment.layout().cell;
    if (first) {
      Descriptor sent;
      std::memcpy(&sent, cell, sizeof sent);
      check(active, sent);
      cell += sizeof(Descriptor);
      space -= sizeof(Descriptor);
    }
    const auto part = std::min(space, left);
    if (part > 0) std::memcpy(to, cell, part);
    to += part;
    left -= part;
    post(pair.read, ++number * kStep);
  }
  peers_.message_done(active);
}

// Also when checks are off: a message of another size would be truncated or waited for.
void Messages::check(const ActiveCall& active, const Descriptor& sent) const {
  const Descriptor& wanted = active.call.what;
  if (sent.count == wanted.count && sent.dtype == wanted.dtype) return;
  const auto& facts = peers_.options().ranks.at(static_cast<std::size_t>(active.call.peer));
  peers_.fail(active, Error{ErrorCode::mismatch,
                            peers_.title(active) + ": " + peers_.describe(active.call.peer) +
                                " called " + to_string(sent),
                            {facts.rank}});
}

}  // namespace acc::runtime::shm
