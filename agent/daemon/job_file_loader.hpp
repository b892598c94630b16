#pragma once

#include "agent/daemon/job_files.hpp"
#include "agent/daemon/job_keeper.hpp"
#include "agent/daemon/plan_program.hpp"

/// Keeps the jobs of jobs.d as their files say: one job a file, started again whenever it ends.
namespace acc::agent::daemon {

class JobFileLoader {
 public:
  explicit JobFileLoader(JobKeeper& keeper) : keeper_{keeper} {}

  /// New files become jobs; of a changed one the job starts anew, of a removed one it is stopped. A
  /// file that is refused, or that acc-launch finds wrong, changes nothing, and is reported. A call
  /// during another one makes that one look again.
  boost::asio::awaitable<Result<void>> load();

 private:
  boost::asio::awaitable<Result<void>> load_all();
  boost::asio::awaitable<void> load_one(JobFile file);
  /// What it takes of the node.
  boost::asio::awaitable<Result<PrintedPlan>> check(LoginUser user, const JobFile& file);
  boost::asio::awaitable<void> add(JobFile file, LoginUser user, PrintedPlan plan);
  boost::asio::awaitable<void> change(JobPtr job, JobFile file, PrintedPlan plan);
  /// Why this node can never give so much; empty: it can.
  [[nodiscard]] std::string complaint(const PlanShare& share) const;
  void keep_jobs_without_folder();
  void stop_job_without_file(const JobFiles& found);
  void refuse(const std::string& name, const std::string& why);
  [[nodiscard]] JobPtr job_of(const std::string& name) const;

  JobKeeper& keeper_;
  bool is_loading_ = false;
  bool loads_again_ = false;
};

}  // namespace acc::agent::daemon
