#pragma once

#include "rendezvous/etcd_http.hpp"

#include <sys/types.h>

#include <cstdint>
#include <string>

/// A real etcd of one member on loopback, with its data in a temporary folder.
class EtcdServer {
 public:
  /// Starts it and waits until it serves; says its version and pid.
  EtcdServer();
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  /// What `etcd --version` says first; empty: not installed.
  static std::string version();

  [[nodiscard]] acc::rendezvous::EtcdEndpoint endpoint() const { return {"127.0.0.1", port_}; }
  void freeze() const;
  void thaw() const;
  /// By SIGKILL.
  void kill();
  /// On the same data and ports.
  void start();
  /// On the same ports without the data.
  void forget();

 private:
  std::string folder_;
  std::uint16_t port_ = 0;
  std::uint16_t peer_port_ = 0;
  pid_t pid_ = -1;
};

/// A port of loopback that was free a moment ago.
std::uint16_t free_port();
