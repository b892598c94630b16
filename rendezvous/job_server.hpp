#pragma once

#include "common/error.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/last_leader_file.hpp"
#include "rendezvous/listener.hpp"
#include "rendezvous/timings.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::rendezvous {

struct JobServerOptions {
  HostPort at{"", 29400};
  std::string secret_file;  ///< empty: the usual places
  bool is_insecure = false;
  Timings timings;
};

/// The coordinators of any number of jobs behind one listener, for a process that belongs to no
/// node (acc-rendezvous). A job begins with its first agent. One loop.
class JobServer {
 public:
  static constexpr const char* kAnyAddress = "::";
  using Say = std::function<void(const std::string& line)>;

  JobServer(boost::asio::io_context& io, JobServerOptions options, Say say);
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

  /// At the first of these addresses that is one of this host. @return 0, or the exit code of the
  /// failure
  int open(const std::vector<std::string>& addresses);

  // ---- observers ----
  [[nodiscard]] HostPort at() const { return listener_->at(); }
  [[nodiscard]] std::size_t jobs() const { return jobs_.size(); }

 private:
  struct Job {
    std::optional<LastLeaderFile> note;
    std::unique_ptr<Coordinator> coordinator;
  };

  Result<void> listen(const std::string& address);
  void greet(std::shared_ptr<Channel> channel, std::string_view first);
  void begin(Job& job, const std::string& name);
  [[nodiscard]] MembershipOptions membership_options(const Job& job, const std::string& name) const;
  /// Renews the notes of jobs that have had a round, and forgets those that were deserted before.
  void visit_jobs();
  void end(const std::string& name);

  boost::asio::io_context& io_;
  JobServerOptions options_;
  Say say_;
  std::shared_ptr<Listener> listener_;
  bool is_everywhere_ = false;  ///< it listens at all addresses
  std::map<std::string, Job> jobs_;
  boost::asio::steady_timer visit_timer_;
  std::uint64_t peers_ = 0;
};

}  // namespace acc::rendezvous
