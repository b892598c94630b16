#pragma once

#include "agent/daemon/job_file_loader.hpp"
#include "agent/daemon/job_keeper.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <string>

namespace acc::agent::daemon {

/// The drain of this node: it takes no jobs until it is undrained, which a restart of the daemon
/// doesn't change, unless its disk is full. Asked for by an operator, or by the health checks of an
/// operator's job.
class NodeDrain {
 public:
  /// All outlive this.
  NodeDrain(boost::asio::io_context& io, JobKeeper& keeper, JobFileLoader& loader)
      : io_{io}, keeper_{keeper}, loader_{loader} {}

  /// @param reason  not empty
  /// @return as Jobs::drain
  boost::asio::awaitable<Result<std::string>> drain(Principal who, std::string reason);
  boost::asio::awaitable<Result<void>> undrain(Principal who);
  /// Drains where a job ended, for good or before a restart, as its own health checks found this
  /// node unfit. Only those of an operator's job count: any user could write such a report.
  void job_ended(const JobId& id, const Result<std::string>& report);

 private:
  /// Of the drain, for the next start. @param reason  empty: there is none
  boost::asio::awaitable<Result<void>> record(std::string reason);

  boost::asio::io_context& io_;
  JobKeeper& keeper_;
  JobFileLoader& loader_;
};

/// What such a report says (pure); "unfit": it says nothing.
/// @param report  of acc-launch, as JSON; written by a user: any bytes
[[nodiscard]] std::string unfit_reason(const std::string& report);

}  // namespace acc::agent::daemon
