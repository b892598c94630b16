#pragma once

#include "agent/accept_loop.hpp"
#include "agent/worker_calls.hpp"
#include "agent/worker_connection.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/unique_fd.hpp"
#include "common/worker_socket.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace acc::agent {

/// The agent's end of the workers' socket (docs/worker-socket.md). Its address is an abstract name:
/// it belongs to the network namespace, leaves nothing on disk and is gone when the agent exits,
/// for whatever reason. Only connections of the same user and of root are accepted. Each connection
/// has one request at a time and a bounded buffer, so a client that floods the server or never
/// reads delays only itself.
class WorkerServer {
 public:
  WorkerServer(boost::asio::io_context& io, WorkerCalls calls);
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  /// Takes some ten microseconds. Requests are not answered before the first begin_round.
  Result<void> listen();
  /// For ACC_AGENT_SOCKET: "@acc-launch/worker/…"; empty: not listening.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Closes all connections of the previous round. `ranks`: of this node.
  void begin_round(Round round, RankRange ranks);
  /// Answers every `lost` request, pending or later in this round. A rank that was reported before
  /// is not reported again. The answers are in the workers' sockets when this returns.
  void tell_lost(const std::vector<worker_socket::LostRank>& lost);
  /// Processes what workers have written so far. To be called before a worker's exit is judged: its
  /// last message may be that a restart won't help.
  void drain();
  /// Stops listening and closes all connections.
  void close();

 private:
  void take(UniqueFd fd);
  void hang_up();
  /// By value: some may end meanwhile.
  [[nodiscard]] std::vector<std::shared_ptr<WorkerConnection>> all() const;

  boost::asio::io_context& io_;
  std::string address_;
  WorkerServerFacts facts_;
  std::uint64_t next_number_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<WorkerConnection>> connections_;
  AcceptLoop accepting_;
};

}  // namespace acc::agent
