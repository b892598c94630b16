#pragma once

#include "agent/daemon/event_ring.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/kept_job.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace acc::agent::daemon {

/// What happens to jobs, told to listeners and the log. Numbers go on over restarts of the daemon:
/// many are set aside with one write, before they are given.
class EventLog {
 public:
  explicit EventLog(boost::asio::thread_pool& files) : files_{files} {}

  /// Before anything is reported. The folder outlives this.
  boost::asio::awaitable<Result<void>> open(StateFolder& folder);
  /// @param job  null: of the daemon itself
  void report(const std::string& kind, const Job* job, const std::string& text);
  [[nodiscard]] const EventRing& ring() const { return ring_; }
  /// Called with each new event.
  std::map<std::uint64_t, std::function<void(const JobEvent&)>> told;

 private:
  void reserve_numbers();

  boost::asio::thread_pool& files_;
  StateFolder* folder_ = nullptr;
  EventRing ring_{1};
  std::uint64_t reserved_ = 0;  ///< numbers below it may be given to events
};

}  // namespace acc::agent::daemon
