#pragma once

#include "agent/worker_calls.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

/// Serves PMI-1 to the workers of a round, each on a socket pair of its own, so that programs built
/// with MPICH find each other without mpiexec. The other end of a pair is inherited by its worker
/// alone.
class PmiServer {
 public:
  /// A worker called MPI_Abort with this code, 1 to 255, and waits to be killed.
  using OnAbort = std::function<void(Rank, int code)>;
  /// Of `calls` it uses on_kv, on_table and on_gone.
  PmiServer(boost::asio::io_context& io, WorkerCalls calls, OnAbort on_abort);
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  /// Ends all connections of the round before.
  void begin_round(const std::string& space, Rank first, WorldSize world);
  /// @return the worker's end, to be inherited as pmi::kWorkerFd. Errors: no descriptors left.
  Result<UniqueFd> connect(LocalRank worker);
  void close();

 private:
  class Connection;

  boost::asio::io_context& io_;  // outlives the server: the agent owns both
  WorkerCalls calls_;
  OnAbort on_abort_;
  std::string space_;
  Rank first_{0};
  WorldSize world_{1};
  std::vector<std::shared_ptr<Connection>> connections_;
};

}  // namespace acc::agent
