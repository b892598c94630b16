#pragma once

#include "agent/daemon/job_record.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <string>
#include <vector>

/// Which process is meant, over the end of this one and over a reboot.
namespace acc::agent::daemon {

/// Remembered once it could be read. Empty: this kernel has none. An error: it can't be read now.
[[nodiscard]] Result<std::string> read_boot_id();
/// The same behind a read_boot_id() that was no error, which a daemon begins with.
[[nodiscard]] std::string boot_id();
/// Of the daemon that has locked `state_folder`: the same over its starts until the next boot, and
/// another one for a copy of the folder. Empty: the boot isn't known.
[[nodiscard]] std::string daemon_identity(const std::string& state_folder);
/// Of a process that runs, or is a zombie that its parent hasn't reaped. An error: there is none,
/// or it can't be read now.
[[nodiscard]] Result<ProcessIdentity> identity_of(pid_t pid);
/// A pidfd of just this process; none: it has ended, also where a zombie is left of it. An error:
/// that can't be known now.
[[nodiscard]] Result<UniqueFd> open_process(const ProcessIdentity& process);
/// The same where its start time can't be read (on_own_thread.hpp): the process of that number, if
/// it is one of `uid`.
[[nodiscard]] Result<UniqueFd> open_process_of(uid_t uid, const ProcessIdentity& process);

struct FoundProcess {
  pid_t pid = 0;
  UniqueFd fd;
};
/// Processes of `uid` that were started with `assignment` ("NAME=value") in their environment, at
/// most `most`: a user may have any number of them, and each takes a descriptor. It reads all of
/// /proc: for the rare case that a guardian was killed. A last one without a descriptor: none were
/// left to look further. That user can hold it up (on_own_thread.hpp).
[[nodiscard]] std::vector<FoundProcess> processes_with(uid_t uid, const std::string& assignment,
                                                       std::size_t most);
/// SIGKILL to all of them but `spared`, one descriptor at a time. @return how many
std::uint64_t kill_processes_with(uid_t uid, const std::string& assignment, pid_t spared = 0);

}  // namespace acc::agent::daemon
