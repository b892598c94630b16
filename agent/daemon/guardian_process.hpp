#pragma once

#include "agent/daemon/guardian_words.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/private_file.hpp"

#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

/// Starts acc-launch as a job's user: a session of its own, nothing of the daemon's but what a
/// login gives. It waits at a gate until the daemon has recorded it
/// (docs/decisions/0034-daemon.md).
namespace acc::agent::daemon {

struct GuardianRequest {
  std::string launcher;            ///< path of acc-launch
  std::vector<std::string> words;  ///< behind "acc-launch"
  std::vector<std::string> environment;
  LoginUser user;
  mode_t umask = 022;
  std::string working_directory;
  /// Its stdout.log and stderr.log are appended to; started and exit.json of an earlier guardian
  /// are removed. Empty: output goes to `output_fd`.
  std::string user_folder;
  int output_fd = -1;
  int cgroup_fd = -1;            ///< -1: none
  std::optional<rlimit> nofile;  ///< before the daemon raised its own; none: as it is
  /// Handed over at kSecretDescriptor; empty: none.
  rendezvous::SecretBytes secret{};
};

/// Where acc-launch reads the job's secret, one line (--secret_fd).
inline constexpr int kSecretDescriptor = 5;

struct StartError {
  int exit_code = 0;
  std::string reason;
};

/// A process that is made and waits at its gate. Dropped, the gate closes for good: it ends without
/// having run anything.
class HeldGuardian {
 public:
  [[nodiscard]] static Result<HeldGuardian> fork(const GuardianRequest& request);

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// For waiting until it has ended; stays valid when this object is gone.
  [[nodiscard]] UniqueFd take_pidfd() { return std::move(pidfd_); }
  void open_gate();
  /// At its end of file acc-launch runs; what can be read before is for explain().
  [[nodiscard]] UniqueFd take_status() { return std::move(status_); }
  /// Why it never ran.
  [[nodiscard]] static StartError explain(const GuardianRequest& request, std::string_view bytes);

 private:
  pid_t pid_ = 0;
  UniqueFd pidfd_;
  UniqueFd gate_;
  UniqueFd status_;
};

}  // namespace acc::agent::daemon
