#pragma once

#include "agent/daemon/job_machine.hpp"
#include "common/error.hpp"

#include <string>
#include <string_view>

/// job.json: what was submitted, and the state (pure: text in, text out).
namespace acc::agent::daemon {

/// A process, so that another one with the same pid isn't taken for it.
struct ProcessIdentity {
  pid_t pid = 0;                 ///< 0: none
  std::uint64_t start_time = 0;  ///< field 22 of /proc/PID/stat
  std::string boot_id;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

struct StoredJob {
  JobId id;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string user;
  SharedSubmission submission;
  JobLife life;
  std::int64_t submitted_ms = 0;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  ProcessIdentity guardian;
  std::vector<std::uint32_t> gpus;
  std::uint64_t bytes = 0;  ///< of an ended job's folder
  std::string job_file;     ///< the stem of its file in jobs.d; empty: it was submitted
  std::string program;      ///< what the workers of that file's job execute; empty: not known
  std::string file_digest;  ///< of that file's content
  std::string boot_id;      ///< when that file was last acted on
};

inline constexpr int kJobFormat = 1;
inline constexpr std::size_t kMaxJobFile = std::size_t{4} << 20U;

[[nodiscard]] std::string encode_job(const StoredJob& job);
/// Total: any bytes give a job or an error that names what is wrong.
[[nodiscard]] Result<StoredJob> decode_job(std::string_view text);

/// user/exit.json, which the job's user wrote: {"exit_code": 0..255, "time_ms": …}, and
/// "stopped": true after a signal to the job; "not_started": why there was no worker.
struct ExitNote {
  int exit_code = 0;
  std::int64_t time_ms = 0;
  bool was_stopped = false;
  std::string not_started = {};
};
[[nodiscard]] Result<ExitNote> decode_exit(std::string_view text);

[[nodiscard]] std::string_view name_of(JobState state);
[[nodiscard]] std::string_view name_of(RestartRule rule);
[[nodiscard]] bool is_job_id(std::string_view text);

}  // namespace acc::agent::daemon
