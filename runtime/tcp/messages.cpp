#include "runtime/tcp/messages.hpp"

#include "runtime/tcp/courier.hpp"

#include <algorithm>
#include <utility>

namespace acc::runtime::hosts {

using namespace std::chrono_literals;

Messages::Messages(Mesh& mesh, Room& room, Lifeline& lifeline, const Placement& placement,
                   std::string group, bool check)
    : mesh_{mesh},
      room_{room},
      lifeline_{lifeline},
      placement_{placement},
      group_{std::move(group)},
      check_{check} {}

// A message is its Descriptor and its bytes. The receiver compares: the sender may be far ahead.
void Messages::send(Turn& turn) {
  room_.check_well(turn);
  const int fd = line_to(turn, turn.call.peer);
  write(turn, fd, &turn.call.what, sizeof turn.call.what);
  write(turn, fd, turn.call.send, turn.call.bytes());
}

void Messages::recv(Turn& turn) {
  room_.check_well(turn);
  const int fd = line_from(turn, turn.call.peer);
  Descriptor theirs;
  read(turn, fd, &theirs, sizeof theirs);
  if (check_) compare(turn, theirs);
  read(turn, fd, turn.call.recv, turn.call.bytes());
}

int Messages::line_to(Turn& turn, int rank) {
  auto& line = out_[rank];
  if (!line) {
    auto made = connect_to_rank(mesh_, placement_.rank, rank, Purpose::message,
                                std::min(turn.deadline(), Clock::now() + 10s));
    if (!made) lifeline_.lose(turn, rank, made.error().what);
    line = *std::move(made);
  }
  return line.get();
}

int Messages::line_from(Turn& turn, int rank) {
  std::vector<pollfd> waits;
  while (!in_[rank]) {
    waits.assign(1, {mesh_.door.get(), POLLIN, 0});
    lifeline_.wait(turn, waits);
    auto guest = receive_guest(mesh_, placement_.size());
    if (!guest && guest.error().code != Errc::not_found)
      room_.fail(turn, {ErrorCode::system, guest.error().what});
    if (guest && guest->purpose == Purpose::message) in_[guest->from] = std::move(guest->fd);
  }
  return in_[rank].get();
}

void Messages::write(Turn& turn, int fd, const void* at, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(at);
  std::vector<pollfd> waits;
  while (bytes > 0) {
    const auto n = send_some(fd, from, bytes, turn, lifeline_, turn.call.peer);
    from += n;
    bytes -= n;
    if (n > 0) continue;
    waits.assign(1, {fd, POLLOUT, 0});
    lifeline_.wait(turn, waits);
  }
}

void Messages::read(Turn& turn, int fd, void* at, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(at);
  std::vector<pollfd> waits;
  while (bytes > 0) {
    const auto n = receive_some(fd, to, bytes, turn, lifeline_, turn.call.peer);
    to += n;
    bytes -= n;
    if (n > 0) continue;
    waits.assign(1, {fd, POLLIN, 0});
    lifeline_.wait(turn, waits);
  }
}

void Messages::compare(Turn& turn, const Descriptor& theirs) {
  auto expected = turn.call.what;
  expected.operation = Operation::send;
  if (theirs == expected) return;
  room_.fail(turn, {ErrorCode::mismatch,
                    "group '" + group_ + "': rank " + std::to_string(turn.call.peer) + ": " +
                        to_string(theirs) + " to rank " + std::to_string(placement_.rank) +
                        ", which calls " + to_string(turn.call.what),
                    {turn.call.peer, placement_.rank}});
}

}  // namespace acc::runtime::hosts
