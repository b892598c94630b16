#pragma once

#include "agent/daemon/job_record.hpp"
#include "agent/daemon/state_mark.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <string>
#include <vector>

/// The daemon's state folder: STATE/jobs/ID and a few small files. What is here blocks, and is
/// valid after a crash or a loss of power at any call.
namespace acc::agent::daemon {

/// A job's config file, as acc-launch reads it: by its ending.
struct JobConfig {
  std::string text;
  bool is_json = false;

  [[nodiscard]] const char* name() const { return is_json ? kJsonConfig : kYamlConfig; }
};

class StateFolder {
 public:
  /// Makes what is missing, and locks it. unavailable: another daemon has it.
  static Result<StateFolder> open(const std::string& path);

  struct Damaged {
    std::string id;
    std::string why;
    std::string moved_to;
  };
  struct Contents {
    std::vector<StoredJob> jobs;
    std::vector<Damaged> damaged;
  };
  /// All jobs. A record that is missing or says nothing is set aside in STATE/damaged with its
  /// folder, and named; what a crash left half made is removed. An error: one can't be read now,
  /// and nothing was changed.
  [[nodiscard]] Result<Contents> read_jobs();

  /// A folder for a new job, with its record and its user's part. `config`: of a jobs.d file;
  /// null: none.
  [[nodiscard]] Result<void> make_job(const StoredJob& job, const JobConfig* config);
  [[nodiscard]] Result<void> write_record(const JobId& id, const std::string& text);
  [[nodiscard]] Result<void> write_config(const JobId& id, const JobConfig& config, uid_t uid,
                                          gid_t gid);
  /// The job is gone when it returns; its files go with remove_trash().
  [[nodiscard]] Result<void> drop_job(const JobId& id);
  struct Trash {
    std::string name;
    uid_t uid = 0;  ///< whose job it was
  };
  [[nodiscard]] Result<std::vector<Trash>> trash() const;
  [[nodiscard]] Result<void> remove_trash(const std::string& name);
  /// A descriptor of jobs/ID/user.
  [[nodiscard]] Result<UniqueFd> open_user_folder(const JobId& id) const;
  [[nodiscard]] std::uint64_t bytes_of(const JobId& id) const;

  /// A file that this user may read, directly in the state folder. @return its path
  [[nodiscard]] Result<std::string> write_for_user(const std::string& name, const std::string& text,
                                                   uid_t uid, gid_t gid);
  /// A small file of the daemon's own, as "drained"; empty: there is none. An error: what it says
  /// can't be known now.
  [[nodiscard]] Result<std::string> read_note(const std::string& name) const;
  /// Empty text removes it.
  [[nodiscard]] Result<void> write_note(const std::string& name, const std::string& text);

  [[nodiscard]] std::string job_path(const JobId& id) const { return path_ + "/jobs/" + id; }
  [[nodiscard]] std::string user_path(const JobId& id) const { return job_path(id) + "/user"; }
  [[nodiscard]] std::string config_path(const JobId& id, const JobConfig& config) const {
    return job_path(id) + "/" + config.name();
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  StateFolder() = default;
  [[nodiscard]] Result<StoredJob> read_job(const std::string& name) const;
  Result<void> set_aside(const std::string& name, std::string& moved_to);

  std::string path_;
  UniqueFd state_;
  UniqueFd jobs_;
  UniqueFd lock_;
};

}  // namespace acc::agent::daemon
