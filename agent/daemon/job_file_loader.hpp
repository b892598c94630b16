#pragma once

#include "agent/daemon/job_files.hpp"
#include "agent/daemon/job_keeper.hpp"
#include "agent/daemon/plan_program.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <utility>

/// Keeps the jobs of jobs.d as their files say: one job a file, started again whenever it ends.
namespace acc::agent::daemon {

class JobFileLoader {
 public:
  JobFileLoader(boost::asio::io_context& io, JobKeeper& keeper) : keeper_{keeper}, loaded_{io} {
    loaded_.expires_at(boost::asio::steady_timer::time_point::max());
  }

  /// New files become jobs; of a changed one the job starts anew, of a removed one it is stopped. A
  /// file that is refused, or that acc-launch finds wrong, changes nothing, and is reported. A call
  /// during another one makes that one look again.
  boost::asio::awaitable<Result<void>> load();
  /// Waits while the files are read for the first time: at the daemon's start their jobs get the
  /// node's slots before those that are submitted.
  boost::asio::awaitable<void> first_load();

 private:
  boost::asio::awaitable<Result<void>> load_all();
  void end_load();
  /// Of the users of one load. An answer that doesn't come is waited for once for each of them.
  using Owners = std::map<std::pair<uid_t, gid_t>, Result<LoginUser>>;
  boost::asio::awaitable<Result<LoginUser>> owner_of(const JobFile& file, Owners& owners);
  boost::asio::awaitable<void> load_one(JobFile file, Owners& owners);
  /// What it takes of the node.
  boost::asio::awaitable<Result<PrintedPlan>> check(LoginUser user, const JobFile& file);
  boost::asio::awaitable<void> add(JobFile file, LoginUser user, PrintedPlan plan);
  boost::asio::awaitable<void> change(JobPtr job, JobFile file, PrintedPlan plan);
  /// Why this node can never give so much; empty: it can.
  [[nodiscard]] std::string complaint(const PlanShare& share) const;
  void keep_jobs_without_folder();
  boost::asio::awaitable<void> stop_job_without_file(const JobFiles& found);
  void refuse(const std::string& name, const std::string& why);
  [[nodiscard]] JobPtr job_of(const std::string& name) const;

  JobKeeper& keeper_;
  bool is_loading_ = false;
  bool loads_again_ = false;
  bool was_loaded_ = false;
  boost::asio::steady_timer loaded_;  ///< cancelled when a load has ended
};

}  // namespace acc::agent::daemon
