#pragma once

#include "agent/daemon/event_log.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/job_processes.hpp"
#include "agent/daemon/job_pruner.hpp"
#include "agent/daemon/kept_job.hpp"
#include "agent/daemon/launcher_trials.hpp"
#include "agent/daemon/service_settings.hpp"
#include "agent/daemon/slot_table.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The jobs of the daemon with their processes and folders: feeds each job's machine with events
/// and carries out what it decides, one action after the other. Who may ask for what is decided
/// above (job_service.hpp).
namespace acc::agent::daemon {

/// The note that holds why the node is drained.
inline constexpr const char* kDrainedNote = "drained";

class JobKeeper {
 public:
  JobKeeper(boost::asio::io_context& io, ServiceSettings settings);
  ~JobKeeper();
  JobKeeper(const JobKeeper&) = delete;
  JobKeeper& operator=(const JobKeeper&) = delete;

  /// Locks the state folder and finds the jobs of an earlier daemon again.
  boost::asio::awaitable<Result<void>> start();

  /// Gives it an id and a folder, and starts it when it has its slots.
  boost::asio::awaitable<Result<JobPtr>> add(StoredJob job, LoginUser user,
                                             const JobConfig* config);
  /// Feeds the machine. What follows is carried out later: settled() of the job waits for it.
  void change(const JobPtr& job, const JobChange& event);
  /// Writes its record anew.
  boost::asio::awaitable<Result<void>> record(JobPtr job);

  [[nodiscard]] EventLog& events() { return events_; }
  [[nodiscard]] const EventLog& events() const { return events_; }
  [[nodiscard]] const JobProcesses& processes() const { return *processes_; }
  [[nodiscard]] LauncherTrials& trials() { return trials_; }
  /// Removes ended jobs; from start() on.
  [[nodiscard]] JobPruner& pruner() { return *pruner_; }
  [[nodiscard]] JobPtr find(const JobId& id) const { return find_job(jobs_, id); }
  [[nodiscard]] const JobTable& jobs() const { return jobs_; }
  [[nodiscard]] SlotTable& slots() { return slots_; }
  [[nodiscard]] const SlotTable& slots() const { return slots_; }
  [[nodiscard]] StateFolder& folder() { return *folder_; }
  [[nodiscard]] boost::asio::thread_pool& files() { return *files_; }
  [[nodiscard]] const ServiceSettings& settings() const { return settings_; }
  /// A drained node starts no job that waits; restarts of those that run go on.
  /// @param reason  empty: it starts them
  void set_drained(std::string reason);
  [[nodiscard]] const std::string& drained() const { return drained_; }
  [[nodiscard]] bool is_drained() const { return !drained_.empty(); }
  void close();

 private:
  void report_damaged(const std::vector<StateFolder::Damaged>& found);
  void adopt_all(std::vector<StoredJob> found);
  /// @param is_again  not for the first time, as its state couldn't be seen
  void adopt(const JobPtr& job, bool is_again = false);
  void adopt_later(const JobPtr& job, bool is_again, const std::string& why);
  boost::asio::awaitable<void> adopt_ended(JobPtr job);
  void tell_of_unholdable() const;
  boost::asio::awaitable<void> carry_out_all(JobPtr job);
  boost::asio::awaitable<void> carry_out(JobPtr job, JobAction action);
  /// @return why its user isn't known; empty: it is
  boost::asio::awaitable<std::string> find_user(JobPtr job);
  void not_started(const JobPtr& job, const std::string& why, const JobChange& event);
  boost::asio::awaitable<void> start_guardian(JobPtr job);
  boost::asio::awaitable<void> watch(JobPtr job);
  void remove_group(const JobPtr& job);
  void spawn(const char* what, boost::asio::awaitable<void> work);
  void give_slots();
  [[nodiscard]] std::optional<GpuNumbers> visible_gpus(const Job& job) const;
  [[nodiscard]] JobId new_id(const std::string& name) const;
  boost::asio::awaitable<Result<void>> record_guardian(JobPtr job, pid_t pid);
  void record_again_later();
  boost::asio::awaitable<void> record_again();
  void arm_delay(const JobPtr& job, Delay delay);
  void hold_back(const JobPtr& job);

  boost::asio::io_context& io_;
  ServiceSettings settings_;
  std::optional<StateFolder> folder_;
  /// Shared with what may end behind the keeper, with the loop.
  std::shared_ptr<boost::asio::thread_pool> files_ = std::make_shared<boost::asio::thread_pool>(1);
  LauncherTrials trials_{settings_, *files_};
  EventLog events_{*files_};
  std::optional<JobProcesses> processes_;  ///< from start() on
  SlotTable slots_;
  bool gives_slots_ = true;  ///< false: jobs of an earlier daemon are still being found again
  JobTable jobs_;
  boost::asio::steady_timer record_timer_;
  bool records_again_ = false;  ///< the timer runs
  std::string drained_;  ///< why; empty: this node isn't
  bool is_closed_ = false;
  std::optional<JobPruner> pruner_;  ///< from start() on
};

}  // namespace acc::agent::daemon
