#include "rendezvous/socket_users.hpp"

#include "common/unmapped_id.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace acc::rendezvous {

struct SocketUsers::End {
  int family = AF_UNSPEC;
  in6_addr address{};  ///< IPv4: the first four bytes
  in_port_t port = 0;  ///< network order
};

SocketUsers::End SocketUsers::end_of(const sockaddr_storage& storage) {
  End end;
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof v4);
    end = {AF_INET, {}, v4.sin_port};
    std::memcpy(&end.address, &v4.sin_addr, sizeof v4.sin_addr);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &storage, sizeof v6);
    end = {AF_INET6, v6.sin6_addr, v6.sin6_port};
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {  // a dual-stack socket that uses IPv4
      constexpr std::size_t kPrefix = 12;
      const in6_addr mapped = end.address;
      end.family = AF_INET;
      end.address = {};
      std::memcpy(&end.address, mapped.s6_addr + kPrefix, sizeof(in_addr));
    }
  }
  return end;
}

namespace {

struct Request {
  nlmsghdr header{};
  inet_diag_req_v2 question{};
};

// The peer can bring about a shortage, by many connections: then it isn't known, but not admitted.
SocketUsers::Answer unanswered(int error) {
  const bool is_shortage = error == EMFILE || error == ENFILE || error == ENOMEM ||
                           error == ENOBUFS || error == EAGAIN || error == EINTR;
  return {is_shortage ? SocketUsers::Known::gone : SocketUsers::Known::unavailable};
}

// A socket that no process holds (orphaned, or what is left in TIME-WAIT) has inode 0, and the
// kernel reports it as root's. Where no connection matches, it reports a listener at the port.
bool has_holder(const inet_diag_msg& found, bool is_connection) {
  const auto state = found.idiag_state;
  const bool is_connected = state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT ||
                            state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2;
  return found.idiag_inode != 0 && (is_connection ? is_connected : state == TCP_LISTEN);
}

}  // namespace

SocketUsers::Answer SocketUsers::ask(const End& end, const End* connected_to) {
  if (!kernel_) {
    kernel_ = UniqueFd{::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
    if (!kernel_) return unanswered(errno);
  }
  Request request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  auto& question = request.question;
  question.sdiag_family = static_cast<std::uint8_t>(end.family);
  question.sdiag_protocol = IPPROTO_TCP;
  question.idiag_states = ~0U;
  question.id.idiag_sport = end.port;
  std::memcpy(question.id.idiag_src, &end.address, sizeof end.address);
  if (connected_to != nullptr) {
    question.id.idiag_dport = connected_to->port;
    std::memcpy(question.id.idiag_dst, &connected_to->address, sizeof connected_to->address);
  }
  question.id.idiag_cookie[0] = question.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(kernel_.get(), &request, sizeof request, 0) != sizeof request)
    return unanswered(errno);

  // The kernel has queued its answer before send() returns.
  alignas(nlmsghdr) char reply[1024];
  const auto size = ::recv(kernel_.get(), reply, sizeof reply, MSG_DONTWAIT);
  if (size < 0) return unanswered(errno);
  if (size < static_cast<ssize_t>(sizeof(nlmsghdr))) return {};
  nlmsghdr header{};
  std::memcpy(&header, reply, sizeof header);
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error{};
    if (size < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof error)) return {};
    std::memcpy(&error, reply + NLMSG_HDRLEN, sizeof error);
    return error.error == -ENOENT ? Answer{Known::gone} : unanswered(-error.error);
  }
  inet_diag_msg found{};
  if (size < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof found)) return {};
  std::memcpy(&found, reply + NLMSG_HDRLEN, sizeof found);
  if (!has_holder(found, connected_to != nullptr)) return {Known::gone};
  return {Known::yes, found.idiag_uid};
}

// A kernel without tcp_diag finds no socket at all. Tried with a socket of our own that no peer can
// close, unlike our end of a connection.
bool SocketUsers::is_blind() {
  if (is_blind_) return *is_blind_;
  const UniqueFd own{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::bind(own.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(own.get(), 0) != 0 ||
      ::getsockname(own.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return false;  // a shortage: tried again the next time
  const Answer seen = ask(end_of(bound), nullptr);
  if (!kernel_) return false;  // as well
  is_blind_ = seen.known != Known::yes;
  return *is_blind_;
}

SocketUsers::Answer SocketUsers::at_other_end(int socket, Side other) {
  sockaddr_storage near{};
  sockaddr_storage far{};
  socklen_t near_size = sizeof near;
  socklen_t far_size = sizeof far;
  auto* const near_address = reinterpret_cast<sockaddr*>(&near);
  auto* const far_address = reinterpret_cast<sockaddr*>(&far);
  if (::getsockname(socket, near_address, &near_size) != 0) return {};
  if (::getpeername(socket, far_address, &far_size) != 0) return {Known::gone};
  const End ours = end_of(near);
  const End theirs = end_of(far);
  if (theirs.family == AF_UNSPEC || ours.family != theirs.family) return {};
  const Answer answer = ask(theirs, other == Side::connects ? &ours : nullptr);
  return answer.known == Known::gone && is_blind() ? Answer{} : answer;
}

// A listener with all addresses is found by each of them.
bool SocketUsers::is_listening(std::uint16_t port) {
  End v4{AF_INET, {}, htons(port)};
  const in_addr loopback{htonl(INADDR_LOOPBACK)};
  std::memcpy(&v4.address, &loopback, sizeof loopback);
  const End v6{AF_INET6, in6addr_loopback, htons(port)};
  return ask(v4, nullptr).known == Known::yes || ask(v6, nullptr).known == Known::yes;
}

static std::string rule_of_users(uid_t theirs) {
  return "it belongs to user " + std::to_string(theirs) + ", this side to user " +
         std::to_string(::geteuid()) +
         ": on loopback a job takes its own user only; with a secret (--secret_file on both sides) "
         "it takes who has that";
}

std::optional<std::string> SocketUsers::objection(const Answer& other) {
  if (other.known == Known::gone) return "closed the connection unexpectedly";
  if (other.known != Known::yes || other.user == 0) return std::nullopt;
  if (other.user != ::geteuid()) return rule_of_users(other.user);
  if (!is_own_uid_ambiguous()) return std::nullopt;
  return "this side runs as user " + std::to_string(other.user) +
         ", by which its user namespace names all users that it doesn't map, so that on loopback "
         "it "
         "can't tell its own: it takes who has its secret (--secret_file on both sides)";
}

std::optional<std::string> SocketUsers::expected_refusal(int socket) {
  const Answer other = at_other_end(socket, Side::listens);
  const bool is_roots = other.known == Known::yes && other.user == 0;
  if (!is_roots || ::geteuid() == 0) return std::nullopt;
  return "turned this side away: " + rule_of_users(other.user);
}

}  // namespace acc::rendezvous
