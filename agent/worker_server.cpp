#include "agent/worker_server.hpp"

#include "common/random.hpp"
#include "common/unmapped_id.hpp"

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

constexpr std::size_t kMostLost = 4096;                 // ranks, so that the answer stays small
constexpr std::size_t kBytesOfLastWords = 1024 * 1024;  // more than a socket's buffer holds

// Threads of a worker may have lines of their own, helpers like nc come and go.
std::size_t most_connections(std::uint32_t workers) { return 64 + 16 * std::size_t{workers}; }

bool may_speak(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return is_own_user(peer.uid, peer.pid) || peer.uid == 0;
}

}  // namespace

WorkerServer::WorkerServer(boost::asio::io_context& io, WorkerCalls calls)
    : io_{io},
      accepting_{
          io, "workers wait to be connected to the agent, which has no descriptor or memory left",
          [this](UniqueFd fd) { take(std::move(fd)); }} {
  facts_.calls = std::move(calls);
  facts_.forget = [this](std::uint64_t number) { connections_.erase(number); };
}

WorkerServer::~WorkerServer() { close(); }

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
  auto started = accepting_.start(std::move(fd));
  if (started) address_ = name;
  return started;
}

void WorkerServer::begin_round(Round round, RankRange ranks) {
  hang_up();
  facts_.round = round;
  facts_.ranks = ranks;
  facts_.lost.clear();
}

void WorkerServer::tell_lost(const std::vector<worker_socket::LostRank>& lost) {
  auto& known = facts_.lost;
  const auto before = known.size();
  for (const auto& one : lost) {
    const bool is_told =
        std::ranges::any_of(known, [&](const auto& other) { return other.rank == one.rank; });
    if (!is_told && known.size() < kMostLost) known.push_back(one);
  }
  if (known.size() == before) return;
  for (const auto& connection : all()) connection->tell_lost();
}

void WorkerServer::drain() {
  if (!accepting_.is_open()) return;
  accepting_.accept_waiting();
  for (const auto& connection : all()) connection->take_in(kBytesOfLastWords);
}

void WorkerServer::close() {
  accepting_.close();
  address_.clear();
  hang_up();
}

void WorkerServer::hang_up() {
  const auto all = std::exchange(connections_, {});
  for (const auto& [number, connection] : all) connection->close();
}

std::vector<std::shared_ptr<WorkerConnection>> WorkerServer::all() const {
  std::vector<std::shared_ptr<WorkerConnection>> found;
  found.reserve(connections_.size());
  for (const auto& [number, connection] : connections_) found.push_back(connection);
  return found;
}

void WorkerServer::take(UniqueFd fd) {
  if (!may_speak(fd.get())) return;  // another user's: learns nothing
  const auto number = next_number_++;
  const bool is_crowded = connections_.size() >= most_connections(facts_.ranks.count);
  const auto connection = std::make_shared<WorkerConnection>(io_, std::move(fd), number, facts_);
  connections_.emplace(number, connection);
  if (is_crowded) return connection->fail("too many connections");
  connection->take_in();
}

}  // namespace acc::agent
