#include "runtime/bootstrap/local_group.hpp"

#include "common/text.hpp"
#include "runtime/net/error_text.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/shm/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::runtime {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxMessage = 64 * 1024;  ///< bytes
/// For messages that a live peer sends immediately.
constexpr auto kMessageTime = 10s;
/// How often a process without a pidfd is looked up.
constexpr auto kPollTime = 20ms;

[[noreturn]] void fail(const acc::Error& error) {
  throw Error{error.code == Errc::timed_out ? ErrorCode::timed_out : ErrorCode::system, error.what};
}

/// The process of a rank that hasn't connected yet: has it ended?
class WatchedProcess {
 public:
  explicit WatchedProcess(const Member& member)
      : pid_{member.pid == ::getpid() ? 0 : static_cast<pid_t>(member.pid)} {
    if (pid_ == 0) return;  // a thread of ours
    fd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  /// A pidfd for poll; -1: there is none (a kernel before 5.3, a system-call filter, no descriptor
  /// left), and the process is looked up periodically.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool must_be_polled() const { return pid_ != 0 && !fd_; }
  [[nodiscard]] bool has_ended() const { return must_be_polled() && shm::has_ended(pid_); }

 private:
  pid_t pid_;
  UniqueFd fd_;
};

/// A message is a length and bytes, and may carry a descriptor.
Result<std::string> receive_message(int fd, UniqueFd* descriptor, Deadline deadline) {
  std::uint32_t size = 0;
  auto got = receive_with(fd, std::as_writable_bytes(std::span{&size, 1}), deadline);
  if (!got) return got.error();
  if (size > kMaxMessage) return acc::Error{Errc::malformed, "a broken note"};
  if (descriptor != nullptr) *descriptor = *std::move(got);
  std::string message(size, '\0');
  if (auto rest = receive_all(fd, std::as_writable_bytes(std::span{message}), deadline); !rest)
    return rest.error();
  return message;
}

}  // namespace

UniqueFd make_memory(std::size_t bytes) {
  rlimit files{};
  // Beyond the limit the kernel sends SIGXFSZ, which ends the process without a message.
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes)
    throw Error{ErrorCode::system, "make shared memory of " + std::to_string(bytes) +
                                       " bytes: the limit of file sizes (ulimit -f) is " +
                                       std::to_string(files.rlim_cur) + " bytes"};
  UniqueFd memory{::memfd_create("acc", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw Error{
        ErrorCode::system,
        system_error(errno, "make shared memory of " + std::to_string(bytes) + " bytes").what};
  return memory;
}

UniqueFd LocalGroup::open_listener() {
  auto listener = listen_at(SocketAddress::abstract(""), SOMAXCONN);
  if (!listener) fail(listener.error());
  return *std::move(listener);
}

std::string LocalGroup::name_of_listener(const UniqueFd& listener) {
  return local_address(listener.get()).host();
}

LocalGroup LocalGroup::connect(const UniqueFd& listener, std::vector<Member> ranks, std::size_t own,
                               const std::string& group, Deadline deadline) {
  LocalGroup local_group{std::move(ranks), own};
  if (own != 0) {
    local_group.connect_to_leader(group, deadline);
    return local_group;
  }
  try {
    local_group.accept_all(listener, group, deadline);
  } catch (const Error& error) {
    local_group.send_to_all(to_text(error));
    throw;
  }
  return local_group;
}

void LocalGroup::connect_to_leader(const std::string& group, Deadline deadline) {
  auto connection = connect_to(SocketAddress::abstract(ranks_[0].local_group), deadline);
  if (!connection && connection.error().code == Errc::exhausted)
    throw Error{ErrorCode::system,
                "rank " + describe(ranks_[own_]) + ": " + connection.error().what};
  if (!connection) throw_lost(0, connection.error());
  if (!is_same_user(connection->get()))
    throw Error{ErrorCode::system,
                "the socket of rank " + describe(ranks_[0]) + " belongs to another user"};
  connections_.emplace_back(*std::move(connection));
  write_message(0, pack({group, std::to_string(own_)}), -1, deadline);
}

void LocalGroup::accept_all(const UniqueFd& listener, const std::string& group, Deadline deadline) {
  connections_.resize(ranks_.size());
  std::vector<WatchedProcess> watched;
  for (std::size_t i = 1; i < ranks_.size(); ++i) watched.emplace_back(ranks_[i]);
  const auto all_connected = [this] {
    return std::all_of(connections_.begin() + 1, connections_.end(),
                       [](const KeptFd& fd) { return !!fd; });
  };
  while (!all_connected()) {
    std::vector<pollfd> waits{{listener.get(), POLLIN, 0}};
    auto until = deadline;
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      const auto& process = watched[i - 1];
      if (!connections_[i] && process.has_ended()) throw_ended(i);
      if (!connections_[i] && process.must_be_polled())
        until = std::min(until, Clock::now() + kPollTime);
      waits.push_back({connections_[i] ? -1 : process.fd(), POLLIN, 0});
    }
    const int ready = ::poll(waits.data(), waits.size(), poll_time(until));
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      if (connections_[i]) continue;
      if (ready > 0 && waits[i].revents != 0) throw_ended(i);
      if (Clock::now() >= deadline)
        throw_lost(i, {Errc::timed_out, "it has not connected to the leader of its host"});
    }
    accept_peers(listener, group, deadline);
  }
}

void LocalGroup::accept_peers(const UniqueFd& listener, const std::string& group,
                              Deadline deadline) {
  // Any user may connect, faster than connections are taken: deadline and processes are looked at
  // in between.
  constexpr int kMostAtOnce = 64;
  for (int i = 0; i < kMostAtOnce && Clock::now() < deadline; ++i) {
    auto peer = accept_from(listener.get());
    if (!peer && peer.error().code == Errc::not_found) return;
    if (!peer)
      throw Error{ErrorCode::system, "rank " + describe(ranks_[0]) + ": " + peer.error().what};
    if (!is_same_user(peer->get())) continue;  // any user may connect to an abstract name
    const auto hello =
        receive_message(peer->get(), nullptr, std::min(deadline, Clock::now() + kMessageTime));
    const auto message = hello ? unpack(*hello) : std::nullopt;
    if (!message || message->size() != 2 || message->front() != group) continue;
    const auto index = parse_number<std::size_t>(message->at(1));
    if (!index || *index == 0 || *index >= connections_.size() || connections_[*index]) continue;
    connections_[*index] = KeptFd{*std::move(peer)};
  }
}

UniqueFd LocalGroup::share(std::size_t bytes, Deadline deadline) {
  if (!is_leader()) {
    UniqueFd memory;
    const auto message = read_message(0, &memory, deadline);
    if (auto error = parse_error(message)) throw *std::move(error);
    if (!memory && message == std::to_string(bytes))  // the kernel dropped it
      throw Error{ErrorCode::system,
                  "rank " + describe(ranks_[own_]) +
                      ": no descriptor is left for the group's memory (ulimit -n)"};
    if (!memory || message != std::to_string(bytes))
      throw Error{ErrorCode::mismatch, "shared memory: the ranks of this host ask for " +
                                           std::to_string(bytes) + " and " +
                                           printable(message, 40) + " bytes"};
    return memory;
  }
  try {
    auto memory = make_memory(bytes);
    for (std::size_t i = 1; i < connections_.size(); ++i)
      write_message(i, std::to_string(bytes), memory.get(), deadline);
    return memory;
  } catch (const Error& error) {
    send_to_all(to_text(error));
    throw;
  }
}

std::vector<UniqueFd> LocalGroup::open_connections(Deadline deadline) {
  std::vector<UniqueFd> connections(is_leader() ? connections_.size() : 1);
  if (!is_leader()) {
    const auto message = read_message(0, &connections[0], deadline);
    if (auto error = parse_error(message)) throw *std::move(error);
    if (!connections[0])
      throw Error{ErrorCode::system, "the leader of this host sent no connection"};
    return connections;
  }
  try {
    for (std::size_t i = 1; i < connections_.size(); ++i) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        throw Error{ErrorCode::system, system_error(errno, "make a pair of sockets").what};
      connections[i].reset(pair[0]);
      const UniqueFd theirs{pair[1]};
      write_message(i, "line", theirs.get(), deadline);
    }
    return connections;
  } catch (const Error& error) {
    send_to_all(to_text(error));
    throw;
  }
}

void LocalGroup::agree(const std::optional<Error>& failure, Deadline deadline,
                       const OtherHosts& other_hosts) {
  const std::string ok = "well";
  if (!is_leader()) {
    std::string message;
    try {
      write_message(0, failure ? to_text(*failure) : ok, -1, deadline);
      message = read_message(0, nullptr, deadline);
    } catch (const Error&) {
      if (failure) throw *failure;  // perhaps the leader's own error: it sent the error and left
      throw;
    }
    if (auto error = parse_error(message)) throw *std::move(error);
    return;
  }
  std::optional<Error> first = failure;
  for (std::size_t i = 1; i < connections_.size() && !first; ++i) {
    try {
      first = parse_error(read_message(i, nullptr, deadline));
    } catch (const Error& error) {
      first = error;
    }
  }
  try {
    if (other_hosts) other_hosts(first);
  } catch (const Error& error) {
    first = error;
  }
  send_to_all(first ? to_text(*first) : ok);
  if (first) throw *std::move(first);
}

// ---- notes ----

void LocalGroup::require_open() const {
  for (std::size_t i = 0; i < connections_.size(); ++i)
    if (connections_[i]) (void)open_connection(i);
}

int LocalGroup::open_connection(std::size_t index) const {
  const auto& connection = connections_[index];
  if (connection.is_ours()) return connection.get();
  const auto& self = ranks_[own_];
  throw Error{ErrorCode::peer_lost,
              "rank " + describe(self) + ": this program has closed the connection to rank " +
                  std::to_string(ranks_[index].rank) + " of its host",
              {self.rank}};
}

std::string LocalGroup::read_message(std::size_t from, UniqueFd* descriptor, Deadline deadline) {
  auto message = receive_message(open_connection(from), descriptor, deadline);
  if (!message) throw_lost(from, message.error());
  return *std::move(message);
}

void LocalGroup::write_message(std::size_t to, std::string_view message, int descriptor,
                               Deadline deadline) {
  message = message.substr(0, kMaxMessage);
  const auto size = static_cast<std::uint32_t>(message.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += message;
  if (auto sent = send_with(open_connection(to), bytes_of(bytes), descriptor, deadline); !sent) {
    if (auto cause = last_message_of(to)) throw *std::move(cause);
    throw_lost(to, sent.error());
  }
}

// A leader that fails sends the cause to all and leaves. The cause arrives before the end of the
// connection, so a rank whose write fails can still read it.
std::optional<Error> LocalGroup::last_message_of(std::size_t index) noexcept {
  try {
    return parse_error(read_message(index, nullptr, Clock::now()));
  } catch (const std::exception&) {
    return std::nullopt;  // it sent nothing
  }
}

// An error with one rank must not keep the message from the others.
void LocalGroup::send_to_all(const std::string& message) noexcept {
  for (std::size_t i = 1; i < connections_.size(); ++i) {
    try {
      if (connections_[i]) write_message(i, message, -1, Clock::now() + kMessageTime);
    } catch (const std::exception&) {
      continue;
    }
  }
}

void LocalGroup::throw_lost(std::size_t index, const acc::Error& how) const {
  const auto& member = ranks_[index];
  const std::string who = "rank " + describe(member);
  if (how.code == Errc::timed_out)
    throw Error{ErrorCode::timed_out, who + " didn't answer: " + how.what, {member.rank}};
  // Only the end of the connection is known here; another rank may know the cause.
  throw Error{ErrorCode::peer_lost, who + " is gone: " + how.what, {member.rank}, kNoCause};
}

void LocalGroup::throw_ended(std::size_t index) const {
  const auto& member = ranks_[index];
  throw Error{ErrorCode::peer_lost,
              "rank " + describe(member) + " is gone: its process ended",
              {member.rank}};
}

}  // namespace acc::runtime
