#pragma once

#include "common/unique_fd.hpp"

#include <memory>
#include <string>

namespace acc::runtime {

/// A process that is a rank of a job: what a client says of itself.
struct StoreClient {
  int rank = 0;
  std::string process;  ///< no other process of any host has it
  std::string who;      ///< for people: "pid 71 on host b"
};
[[nodiscard]] StoreClient this_process(int rank);

/// Serves a store from a thread until it is destroyed.
class TcpStoreServer {
 public:
  /// @param listener  listening, non-blocking.
  /// @param job  clients must name it.
  /// @param self  the server's own rank; it is taken for as long as the server is there.
  /// @throws Error system
  TcpStoreServer(UniqueFd listener, std::string job, StoreClient self, int size);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// A connection for this process, which needs no network and no greeting.
  /// @throws Error system
  [[nodiscard]] UniqueFd connect();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace acc::runtime
