#pragma once

#include "rendezvous/listener.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Listening address of this node: the seed endpoint, if the node serves it, else, as a standby,
/// the address by which it reaches the coordinator. Opens at most one Listener.
class OwnListener {
 public:
  struct Options {
    HostPort seed;  ///< the job's first endpoint, as configured
    std::string
        listen;  ///< numeric address or name of this host; empty: that of the seed or the link
    std::shared_ptr<const TlsContext> tls;
    bool is_insecure = false;
    AdmissionLimits admission;
    Millis heartbeat_timeout{5'000};
  };
  struct Events {
    Listener::OnPeer on_peer;
    std::function<void(std::string text, bool is_warning)> tell;
  };

  OwnListener(boost::asio::io_context& io, Options options, Events events);
  ~OwnListener();
  OwnListener(const OwnListener&) = delete;
  OwnListener& operator=(const OwnListener&) = delete;

  /// To be looked up for serve_seed(): the addresses of the seed on this host.
  [[nodiscard]] HostPort seed_to_look_up() const;
  /// Serves the seed endpoint, which has these addresses: on one of them, or, if none belongs to
  /// this host (a service, a NAT), on all interfaces.
  [[nodiscard]] Result<void> serve_seed(const std::vector<std::string>& addresses);
  /// @return whether one of the addresses belongs to this host and its port was free.
  [[nodiscard]] bool serve_seed_if_here(const std::vector<std::string>& addresses);
  /// For votes, if the coordinator is lost: on the address by which this node reaches it, at the
  /// seed's port if that is free (a firewall already permits it).
  void open_standby(const std::string& own_address);
  /// With etcd any node may coordinate: listens on the address announced to others.
  [[nodiscard]] Result<void> open_for_all(const std::string& own_address, std::uint16_t port);
  void stop();
  /// serve_seed() found no address of the seed on this host.
  [[nodiscard]] bool is_seed_elsewhere() const { return is_seed_elsewhere_; }

  /// Nothing: not listening.
  [[nodiscard]] std::optional<HostPort> at() const;

 private:
  Result<void> open(const std::string& address, std::uint16_t port);
  Result<void> open_seed(const std::string& address);
  void turned_away(const TurnedAway& who);

  boost::asio::io_context& io_;
  Options options_;
  Events events_;
  std::shared_ptr<Listener> listener_;
  bool is_seed_elsewhere_ = false;
};

}  // namespace acc::rendezvous
