#pragma once

#include <string>
#include <string_view>

/// What the guardian of a daemon's job writes down in the job's folder, so that a restarted daemon,
/// which can't wait for a process that isn't its child, knows how the job stands
/// (docs/decisions/0034-daemon.md). Nothing without the variable.
namespace acc::agent {

/// The folder of this job that belongs to its user. The guardian and the agent read it; workers
/// don't get it.
inline constexpr const char* kJobFolderVariable = "ACC_JOB_FOLDER";

class JobFolderNotes {
 public:
  /// Makes `started`: the guardian's first act. Folder: $ACC_JOB_FOLDER, absolute.
  JobFolderNotes();
  /// Brings `started` to the disk. Apart, as workers needn't wait for that.
  void sync() const;
  /// Makes exit.json: the guardian's last act.
  /// @param was_stopped  by a signal to the job, perhaps on another node, of which the daemon here
  ///   knows nothing
  /// @param not_started  why there was no worker; empty: there was one, or it isn't known
  void ended(int exit_code, bool was_stopped = false, std::string_view not_started = {}) const;

 private:
  std::string folder_;  ///< empty: no daemon asked
};

/// The id by which the daemon knows its job; empty: no daemon started this one. @param job_folder
/// STATE/jobs/ID/user; may be null
[[nodiscard]] std::string daemon_id_of(const char* job_folder);

/// What the folder of a run's logs begins with: the job's name, or, where nobody chose one, the
/// daemon's id of it.
[[nodiscard]] std::string run_id_of(const std::string& job, const char* job_folder);

}  // namespace acc::agent
