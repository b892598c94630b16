#pragma once

#include "common/alive.hpp"
#include "rendezvous/dialer.hpp"
#include "rendezvous/link.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>

namespace acc::rendezvous {

/// Looks for another coordinator of this job at the seed endpoint, from a node that serves it
/// though the address isn't one of its own. That is fine for a service or behind a NAT, where the
/// endpoint leads back to this node or nowhere; with --node_rank 0 on two machines it leads to the
/// other one.
class RivalWatch {
 public:
  struct Options {
    DialOptions dial;
    Join join;     ///< as this node would join
    Millis every;  ///< between two attempts; the other one may be started later
  };
  /// @param on_rival  once, from the loop: why this node can't be the coordinator. It may drop us.
  using OnRival = std::function<void(const std::string& why)>;
  RivalWatch(boost::asio::io_context& io, Options options, OnRival on_rival);
  RivalWatch(const RivalWatch&) = delete;
  RivalWatch& operator=(const RivalWatch&) = delete;
  ~RivalWatch();

 private:
  void try_now();
  void try_later();
  void ask(std::shared_ptr<Channel> channel);
  void answered(const Frame& frame);

  boost::asio::io_context& io_;
  Options options_;
  OnRival on_rival_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Dial> dial_;
  std::shared_ptr<Link> link_;
  Alive alive_;
};

}  // namespace acc::rendezvous
