#pragma once

#include "agent/daemon/guardian_words.hpp"
#include "agent/daemon/job_machine.hpp"
#include "agent/daemon/job_record.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

namespace acc::agent::daemon {

/// A job as the keeper holds it: its record, its guardian while it runs, and what is still to be
/// carried out for it.
struct Job {
  Job(boost::asio::io_context& io, StoredJob job)
      : stored{std::move(job)}, process{io}, delay{io}, kill{io}, idle{io} {
    idle.expires_at(boost::asio::steady_timer::time_point::max());
  }

  StoredJob stored;
  std::optional<LoginUser> user;
  boost::asio::posix::stream_descriptor process;  ///< a pidfd of the guardian, while it runs
  std::chrono::steady_clock::time_point begun{};  ///< of the guardian, or of its adoption
  boost::asio::steady_timer delay;
  boost::asio::steady_timer kill;
  std::deque<JobAction> actions;
  bool is_busy = false;            ///< its actions are being carried out
  boost::asio::steady_timer idle;  ///< cancelled when they have been
  bool is_leaving = false;         ///< its folder is being removed
  bool loses_group = false;        ///< its control group is being removed
  std::string not_recorded;        ///< why its record is older than its state; empty: it isn't

  [[nodiscard]] const JobId& id() const { return stored.id; }
};
using JobPtr = std::shared_ptr<Job>;
using JobTable = std::map<JobId, JobPtr>;

/// Null: there is none, or it is being removed.
[[nodiscard]] JobPtr find_job(const JobTable& jobs, const JobId& id);
/// Waits until what was decided for it has been carried out.
boost::asio::awaitable<void> settled(JobPtr job);
/// As the API shows it.
[[nodiscard]] JobRecord record_of(const Job& job);

/// Wall clock, since the epoch: for records.
[[nodiscard]] std::int64_t wall_ms();

}  // namespace acc::agent::daemon
