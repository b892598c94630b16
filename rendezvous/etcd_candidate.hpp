#pragma once

#include "common/alive.hpp"
#include "rendezvous/etcd_leadership.hpp"
#include "rendezvous/lookup.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::rendezvous {

/// Address of etcd, and where this node itself listens.
struct EtcdOptions {
  EtcdServers servers;
  std::string prefix = "/acc";
  std::uint16_t listen_port = 0;  ///< 0: any
};

/// This node as a candidate for coordinator in etcd: its own address, found by its way to etcd, and
/// a Leadership while it has no coordinator. Only the coordinator and nodes without one connect to
/// etcd: the others keep no connection to it. One loop.
class EtcdCandidate {
 public:
  /// `events.trouble` reports each problem; `tell` one that differs from the last, as a warning.
  struct Hooks {
    LeadershipEvents events;
    std::function<void(const std::string& text, bool is_warning)> tell;
  };
  /// @param leadership  `at` and `lowest_term` are set by this class
  EtcdCandidate(boost::asio::io_context& io, EtcdServers servers, LeadershipOptions leadership,
                Hooks hooks);
  ~EtcdCandidate() { alive_.end(); }
  EtcdCandidate(const EtcdCandidate&) = delete;
  EtcdCandidate& operator=(const EtcdCandidate&) = delete;

  /// Tries until it is known by which of its addresses this host reaches etcd. Never loopback, by
  /// which no other host reaches this one: in its place any address that others may reach.
  void find_own_address(std::function<void(const std::string& own)> on_found);
  /// Others reach this node at `here`, from now on: the winner must be reachable already.
  void open(HostPort here) { options_.at = std::move(here); }
  [[nodiscard]] const HostPort& here() const { return options_.at; }

  /// Whether this node seeks a coordinator; nothing happens before open().
  void seek(bool seeks, std::uint32_t lowest_term);
  void withdraw() { leadership_.reset(); }

  // as in Leadership; nothing without one
  /// So that no successor waits for the lease.
  void resign();
  void commit(const RoundRecord& record);
  [[nodiscard]] std::optional<Leadership::LeadershipTerm> leadership_term() const;
  /// There is no job: removes what this leader wrote. Only from `lead`.
  void end_job(std::function<void()> done);
  /// At the end of this process; bounded.
  void finish(bool job_is_over, std::function<void()> done);

 private:
  void look_up(std::size_t index, std::function<void(const std::string& own)> on_found);
  /// Where etcd is on loopback. @return whether this node has an address to announce
  bool announce_routable(const std::function<void(const std::string& own)>& on_found);
  void trouble(const std::string& text);

  boost::asio::io_context& io_;
  EtcdServers servers_;
  LeadershipOptions options_;
  Hooks hooks_;
  std::shared_ptr<Lookup> lookup_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<EtcdLeadership> leadership_;
  std::string last_trouble_;
  std::string on_loopback_;  ///< beginning of a message: an endpoint that is loopback here
  Alive alive_;
};

}  // namespace acc::rendezvous
