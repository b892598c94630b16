#include "agent/worker_server.hpp"

#include "agent/worker_connection.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace acc::agent {

namespace {

constexpr int kAcceptsATurn = 64;
constexpr Millis kAcceptPause{100};
constexpr std::size_t kMostLost = 4096;                 // ranks, so that the answer stays small
constexpr std::size_t kBytesOfLastWords = 1024 * 1024;  // more than a socket's buffer holds

// Threads of a worker may have lines of their own, helpers like nc come and go.
std::size_t most_connections(std::uint32_t workers) { return 64 + 16 * std::size_t{workers}; }

bool may_speak(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

struct WorkerServer::Impl : std::enable_shared_from_this<Impl> {
  using Descriptor = boost::asio::posix::stream_descriptor;

  Impl(boost::asio::io_context& loop, WorkerCalls calls) : io{loop}, listener{loop}, pause{loop} {
    facts.calls = std::move(calls);
    facts.forget = [this](std::uint64_t number) { connections.erase(number); };
  }

  void accept_later();
  void after_pause();
  void accept_waiting();
  void take(UniqueFd fd);
  void hang_up();
  /// By value: some may end meanwhile.
  [[nodiscard]] std::vector<std::shared_ptr<WorkerConnection>> all() const;

  boost::asio::io_context& io;
  Descriptor listener;
  boost::asio::steady_timer pause;
  std::string address;
  WorkerServerFacts facts;
  std::uint64_t next_number = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<WorkerConnection>> connections;
  bool told_shortage = false;
};

WorkerServer::WorkerServer(boost::asio::io_context& io, WorkerCalls calls)
    : impl_{std::make_shared<Impl>(io, std::move(calls))} {}

WorkerServer::~WorkerServer() { close(); }

const std::string& WorkerServer::address() const { return impl_->address; }

Result<void> WorkerServer::listen() {
  const std::string name = "@acc-launch/worker/" + std::to_string(::getpid()) + '-' + random_name();
  const std::string attempted = "listen for workers at '" + name + "'";
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, name.data() + 1, name.size() - 1);  // '@' stands for a zero
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), length) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    return system_error(errno, attempted);
  impl_->listener.assign(fd.release());
  impl_->address = name;
  impl_->accept_later();
  return {};
}

void WorkerServer::begin_round(Round round, Rank first, std::uint32_t workers) {
  impl_->hang_up();
  impl_->facts.round = round;
  impl_->facts.first = first;
  impl_->facts.workers = workers;
  impl_->facts.lost.clear();
}

void WorkerServer::tell_lost(const std::vector<worker_socket::LostRank>& lost) {
  auto& known = impl_->facts.lost;
  const auto before = known.size();
  for (const auto& one : lost) {
    const bool is_told =
        std::ranges::any_of(known, [&](const auto& other) { return other.rank == one.rank; });
    if (!is_told && known.size() < kMostLost) known.push_back(one);
  }
  if (known.size() == before) return;
  for (const auto& connection : impl_->all()) connection->tell_lost();
}

void WorkerServer::drain() {
  if (!impl_->listener.is_open()) return;
  impl_->accept_waiting();
  for (const auto& connection : impl_->all()) connection->take_in(kBytesOfLastWords);
}

void WorkerServer::close() {
  boost::system::error_code ignored;
  impl_->listener.close(ignored);
  impl_->pause.cancel();
  impl_->address.clear();
  impl_->hang_up();
}

void WorkerServer::Impl::hang_up() {
  const auto all = std::exchange(connections, {});
  for (const auto& [number, connection] : all) connection->close();
}

std::vector<std::shared_ptr<WorkerConnection>> WorkerServer::Impl::all() const {
  std::vector<std::shared_ptr<WorkerConnection>> found;
  found.reserve(connections.size());
  for (const auto& [number, connection] : connections) found.push_back(connection);
  return found;
}

void WorkerServer::Impl::accept_later() {
  listener.async_wait(Descriptor::wait_read,
                      [weak = weak_from_this()](boost::system::error_code error) {
                        const auto self = weak.lock();
                        if (error || !self || !self->listener.is_open()) return;
                        self->accept_waiting();
                        self->after_pause();
                      });
}

void WorkerServer::Impl::after_pause() {
  if (pause.expiry() <= std::chrono::steady_clock::now()) return accept_later();
  pause.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self && self->listener.is_open()) self->accept_later();
  });
}

void WorkerServer::Impl::accept_waiting() {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    UniqueFd fd{
        ::accept4(listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (fd) {
      take(std::move(fd));
      continue;
    }
    const bool shortage = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!shortage) return;
    if (!std::exchange(told_shortage, true))
      log::warn("workers wait to be connected to the agent, which has no descriptor or memory left",
                {{"why", std::strerror(errno)}});
    pause.expires_after(kAcceptPause);  // or the loop would spin on what it can't take
    return;
  }
}

void WorkerServer::Impl::take(UniqueFd fd) {
  if (!may_speak(fd.get())) return;  // another user's: learns nothing
  const auto number = next_number++;
  const bool is_crowded = connections.size() >= most_connections(facts.workers);
  const auto connection = std::make_shared<WorkerConnection>(io, std::move(fd), number, facts);
  connections.emplace(number, connection);
  if (is_crowded) return connection->fail("too many connections");
  connection->take_in();
}

}  // namespace acc::agent
