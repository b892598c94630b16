#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/worker_socket.hpp"
#include "rendezvous/messages.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

/// What workers say to their agent, handed on to whoever can act on it. The answers may be given at
/// once or later, from the loop's thread; one that comes after the worker hung up has no effect.
struct WorkerCalls {
  using KvAnswer = std::function<void(rendezvous::KvReply)>;
  using TableAnswer = std::function<void(const std::vector<rendezvous::TableRow>&)>;
  /// `connection` is the asker in a store on this node; request.id is not set.
  std::function<void(std::uint64_t connection, rendezvous::KvRequest, KvAnswer)> on_kv;
  std::function<void(TableAnswer)> on_table;  ///< rows in the order of the nodes' ranks
  std::function<void(LocalRank, std::uint64_t step, Instant now)> on_beat;
  std::function<void(LocalRank, std::uint64_t step)> on_checkpoint;
  std::function<void(LocalRank, const std::string& why)> on_no_restart;  ///< printable
  /// A connection ended: its waits in a store on this node are void.
  std::function<void(std::uint64_t connection)> on_gone;
};

/// The agent's end of the workers' socket (docs/worker-socket.md). An abstract name: it belongs to
/// the network namespace, leaves nothing on a disk and ends with us, however we end. Only our own
/// user and root may speak. Whoever writes without end, or reads nothing, only keeps himself
/// waiting: a connection has one question at a time and a bounded buffer.
class WorkerServer {
 public:
  WorkerServer(boost::asio::io_context& io, WorkerCalls calls);
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  /// Costs some ten microseconds; nobody is answered before the first begin_round.
  Result<void> listen();
  /// For ACC_AGENT_SOCKET: "@acc-launch/worker/…"; empty: not listening.
  [[nodiscard]] const std::string& address() const;
  /// Ends all connections of the round before. The ranks of this node are `workers` from `first`.
  void begin_round(Round round, Rank first, std::uint32_t workers);
  /// To all who ask `lost`, now and later in this round; a rank that was told before isn't told
  /// anew. What is written to the workers is in their sockets when this returns.
  void tell_lost(const std::vector<worker_socket::LostRank>& lost);
  /// Takes in what workers have written up to now. Before a worker's exit is judged: its last words
  /// may be that a restart would not help.
  void drain();
  /// Nobody is listened to any more.
  void close();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< shared with nobody; a wait under way sees that it is gone
};

}  // namespace acc::agent
