#include "agent/preload/worker_set.hpp"

#include "common/poll_now.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

constexpr std::size_t kMostDescriptors = 6;
constexpr std::uint32_t kAtOnce = std::uint32_t{1} << 31U;  // forked_workers.py has it, too

}  // namespace

bool send_packet(int socket, const std::string& packet, std::span<const int> fds) {
  if (packet.size() > preload::kLongestMessage) {
    errno = EMSGSIZE;
    return false;
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space{};
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = space.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

WorkerSet::WorkerSet(boost::asio::io_context& io, preload::ForkNumber number)
    : number_{number}, orders_{io} {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  UniqueFd ours{ends[0]};
  orders_end_.reset(ends[1]);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  boost::system::error_code refused;
  orders_.assign(ours.get(), refused);
  if (refused) {
    errno = refused.value();
    return;
  }
  static_cast<void>(ours.release());
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  asks_end_.reset(ends[0]);
  asks_.reset(ends[1]);
}

void WorkerSet::close_theirs() {
  orders_end_.reset();
  asks_end_.reset();
}

void WorkerSet::watch(std::function<void()> then) {
  orders_.async_wait(Descriptor::wait_read,
                     alive_.bind([this, then = std::move(then)](boost::system::error_code error) {
                       if (error) return;
                       if (!is_ready(orders_.native_handle(), POLLIN)) return watch(then);
                       then();
                     }));
}

// A pipe whose reader has ended: SIGPIPE is ignored by an agent, and the watch reports the end.
bool WorkerSet::ask(std::uint32_t workers, bool at_once) {
  has_forked_ahead_ = has_forked_ahead_ || !at_once;
  const std::uint32_t word = workers | (at_once ? kAtOnce : 0);
  return ::write(asks_.get(), &word, sizeof word) == sizeof word;
}

bool WorkerSet::order(const std::string& packet, std::span<const int> fds) {
  return send_packet(orders_.native_handle(), packet, fds);
}

UniqueFd WorkerSet::end() {
  asks_.reset();
  UniqueFd socket{orders_.release()};
  ::shutdown(socket.get(), SHUT_WR);
  return socket;
}

}  // namespace acc::agent
