#include "runtime/tcp/messages.hpp"

#include "runtime/tcp/socket_mux.hpp"

#include <algorithm>
#include <utility>

namespace acc::runtime::tcp {

using namespace std::chrono_literals;

Messages::Messages(Mesh& mesh, NodeSegment& node, AbortableWait& abortable,
                   const RankPlacement& placement, std::string group, bool check)
    : mesh_{mesh},
      node_{node},
      abortable_{abortable},
      placement_{placement},
      group_{std::move(group)},
      check_{check} {}

// A message is its Descriptor and its bytes. The receiver compares, as the sender may be far ahead.
void Messages::send(ActiveCall& active) {
  node_.check_healthy(active);
  const int fd = connection_to(active, active.call.peer);
  write(active, fd, &active.call.what, sizeof active.call.what);
  write(active, fd, active.call.send, active.call.bytes());
  node_.peers().message_done(active);
}

void Messages::recv(ActiveCall& active) {
  node_.check_healthy(active);
  const int fd = connection_from(active, active.call.peer);
  Descriptor theirs;
  read(active, fd, &theirs, sizeof theirs);
  compare(active, theirs);
  read(active, fd, active.call.recv, active.call.bytes());
  node_.peers().message_done(active);
}

int Messages::connection_to(ActiveCall& active, int rank) {
  auto& connection = out_[rank];
  if (!connection) {
    auto made = connect_to_rank(mesh_, placement_.rank, rank, Purpose::message,
                                std::min(active.deadline(), Clock::now() + 10s));
    if (!made) abortable_.lose(active, rank, made.error().what);
    connection = KeptFd{*std::move(made)};
  }
  return open_fd(active, connection);
}

int Messages::connection_from(ActiveCall& active, int rank) {
  std::vector<pollfd> waits;
  while (!in_[rank]) {
    auto incoming = mesh_.listener.next();
    if (!incoming) node_.fail(active, {ErrorCode::system, incoming.error().what});
    if (*incoming) {
      auto& [fd, peer, purpose] = **incoming;
      if (purpose != Purpose::message || !fd.is_ours()) continue;
      set_options(fd.get(), mesh_, purpose);
      in_[peer] = std::move(fd);
      continue;
    }
    waits.clear();
    mesh_.listener.add_waits(waits);
    abortable_.wait(active, waits);
  }
  return open_fd(active, in_[rank]);
}

int Messages::open_fd(ActiveCall& active, const KeptFd& connection) {
  if (!connection.is_ours()) abortable_.lose_own(active, active.call.peer);
  return connection.get();
}

void Messages::write(ActiveCall& active, int fd, const void* at, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(at);
  std::vector<pollfd> waits;
  while (bytes > 0) {
    const auto n = send_some(fd, from, bytes, active, abortable_, active.call.peer);
    from += n;
    bytes -= n;
    if (n > 0) continue;
    waits.assign(1, {fd, POLLOUT, 0});
    abortable_.wait(active, waits);
  }
}

void Messages::read(ActiveCall& active, int fd, void* at, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(at);
  std::vector<pollfd> waits;
  while (bytes > 0) {
    const auto n = receive_some(fd, to, bytes, active, abortable_, active.call.peer);
    to += n;
    bytes -= n;
    if (n > 0) continue;
    waits.assign(1, {fd, POLLIN, 0});
    abortable_.wait(active, waits);
  }
}

// Also when checks are off: after a message of another size the next one would begin anywhere.
void Messages::compare(ActiveCall& active, const Descriptor& theirs) {
  auto expected = active.call.what;
  expected.operation = Operation::send;
  const bool fits = theirs.count == expected.count && theirs.dtype == expected.dtype;
  if (check_ ? theirs == expected : fits) return;
  node_.fail(active, {ErrorCode::mismatch,
                      "group '" + group_ + "': rank " + std::to_string(active.call.peer) + ": " +
                          to_string(theirs) + " to rank " + std::to_string(placement_.rank) +
                          ", which calls " + to_string(active.call.what),
                      {active.call.peer, placement_.rank}});
}

}  // namespace acc::runtime::tcp
