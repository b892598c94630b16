#pragma once

#include "common/alive.hpp"
#include "rendezvous/last_leader_file.hpp"
#include "rendezvous/rival_watch.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::rendezvous {

/// Keeps the job's first coordinator, in this process, the only one at the seed endpoint: the file
/// by which one that is restarted on this host knows of this one, and the look-out for another
/// behind the same address, until there is a round. One loop.
class SeedGuard {
 public:
  struct Hooks {
    std::function<bool()> has_round;
    std::function<void(const std::string& why)> on_rival;  ///< as RivalWatch; only without a round
  };
  SeedGuard(boost::asio::io_context& io, const std::string& job, std::uint16_t port, Hooks hooks);
  SeedGuard(const SeedGuard&) = delete;
  SeedGuard& operator=(const SeedGuard&) = delete;
  ~SeedGuard();

  /// How long ago a coordinator of this job ended here without a word.
  [[nodiscard]] std::optional<Millis> left_ago() const { return file_.age(); }
  /// @param every  half a heartbeat timeout: so often the file is renewed while there is a round
  void renew_file(Millis every);
  void watch_for_rival(RivalWatch::Options options);
  /// The seed endpoint leads back to this node.
  void end_rival_watch();
  void stop();
  /// The job ended properly.
  void remove_file() const { file_.remove(); }

 private:
  boost::asio::io_context& io_;
  LastLeaderFile file_;
  Hooks hooks_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<RivalWatch> rivals_;
  Alive alive_;
};

}  // namespace acc::rendezvous
