#pragma once

#include "common/unique_fd.hpp"

#include <memory>
#include <string>

namespace acc::runtime {

/// Serves a store from a thread until it is destroyed.
class TcpStoreServer {
 public:
  /// @param listener  listening, non-blocking.
  /// @param job  clients must name it, and say the same `size`.
  TcpStoreServer(UniqueFd listener, std::string job, int size);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace acc::runtime
