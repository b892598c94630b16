#pragma once

#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/kept_job.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace acc::agent::daemon {

/// The processes of jobs: what they left, signals, the agent's socket, and the end of all of them.
class JobProcesses {
 public:
  /// @param group  the control group above those of the jobs; may be empty
  JobProcesses(const StateFolder& folder, std::string group,
               std::shared_ptr<boost::asio::thread_pool> files)
      : folder_{folder}, group_{std::move(group)}, files_{std::move(files)} {}

  /// What is left of a guardian. @param process  none if it has ended
  /// An error: its files can't be read now (no descriptor, a file server that is away). Such a job
  /// must not count as one that never began, and be started again.
  [[nodiscard]] Result<Found> look(const Job& job, const UniqueFd& process) const;
  /// The same of one that has ended, each second until its files can be read.
  boost::asio::awaitable<Found> look_until_read(JobPtr job) const;
  [[nodiscard]] Result<void> send_signal(const Job& job, int signo) const;
  /// One request to the job's agent. One that was just started is waited for, unless the request
  /// only looks.
  boost::asio::awaitable<Result<std::string>> ask(JobPtr job, std::string request) const;
  boost::asio::awaitable<void> stop(JobPtr job, std::optional<std::uint32_t> grace_s) const;
  boost::asio::awaitable<void> kill(JobPtr job) const;
  /// The agent of a lost guardian stops its workers within their grace. Nothing starts before that.
  /// Two of a user at once, each with a few descriptors, whatever processes there are.
  boost::asio::awaitable<void> sweep(JobPtr job) const;
  /// The control group of one that has ended, off the loop: what was killed has to end first, and a
  /// user may have made a thousand groups. Given up after 30 s.
  boost::asio::awaitable<void> remove_group(JobPtr job) const;
  /// No remove_group() is at work.
  boost::asio::awaitable<void> group_removed(JobPtr job) const;
  [[nodiscard]] const std::string& group() const { return group_; }

 private:
  boost::asio::awaitable<Result<UniqueFd>> connect(JobPtr job, bool is_awaited) const;

  const StateFolder& folder_;
  std::string group_;
  std::shared_ptr<boost::asio::thread_pool> files_;
  /// Folders that are watched for a socket, and watches that are being closed on `files_`.
  std::shared_ptr<std::atomic<int>> watched_ = std::make_shared<std::atomic<int>>(0);
  /// Sweeps of each user at present.
  std::shared_ptr<std::map<uid_t, int>> sweeps_ = std::make_shared<std::map<uid_t, int>>();
};

void send_to(const UniqueFd& process, int signo);

}  // namespace acc::agent::daemon
