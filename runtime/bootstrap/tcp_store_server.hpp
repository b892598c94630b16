#pragma once

#include "common/unique_fd.hpp"

#include <memory>
#include <string>

namespace acc::runtime {

/// The identity that a client sends: its rank and process.
struct StoreClient {
  int rank = 0;
  std::string process;  ///< unique over all hosts
  std::string who;      ///< for messages: "pid 71 on host b"
};
[[nodiscard]] StoreClient this_process(int rank);

/// Serves a store from a thread until it is destroyed.
class TcpStoreServer {
 public:
  /// @param listener  listening, non-blocking.
  /// @param job  clients must present the same.
  /// @param self  the server's own rank, taken as long as the server exists.
  /// @throws Error system
  TcpStoreServer(UniqueFd listener, std::string job, StoreClient self, int size);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// A connection for this process, without network or greeting.
  /// @throws Error system
  [[nodiscard]] UniqueFd connect();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace acc::runtime
