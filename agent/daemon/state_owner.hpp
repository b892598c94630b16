#pragma once

#include "agent/daemon/job_folder.hpp"
#include "common/error.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Which machine a state folder belongs to. One in a home that machines share may be found by a
/// daemon on another machine, where the processes of its jobs can't be seen.
namespace acc::agent::daemon {

/// The note in the state folder that holds its machine.
inline constexpr const char* kMachineNote = "machine";

struct MachineIdentity {
  std::string id;  ///< of /etc/machine-id; empty: it has none that lasts
  std::string host;
  std::string boot{};  ///< id of the running kernel's boot, which no other machine has
  friend bool operator==(const MachineIdentity&, const MachineIdentity&) = default;
};

/// The id in the text of /etc/machine-id; empty: it is none, as "uninitialized".
[[nodiscard]] std::string machine_id_in(std::string_view text);
/// The machine of this process. An id that systemd made for this boot alone counts as none. An
/// error: it can't be read now.
[[nodiscard]] Result<MachineIdentity> own_machine();
/// Never in one boot of a kernel, as a container that is made anew, with another image and name.
/// Else by the ids, where both have one, as a host's name may change; else by the host names.
[[nodiscard]] bool are_different(const MachineIdentity& a, const MachineIdentity& b);

[[nodiscard]] std::string encode_machine(const MachineIdentity& machine);
/// Total: nothing for what is no such note.
[[nodiscard]] std::optional<MachineIdentity> decode_machine(std::string_view text);

/// The jobs for which a folder isn't taken over from another machine: those that haven't ended, as
/// they may run there, and ended ones that a file of jobs.d, one of `files` (stems), would start.
[[nodiscard]] std::vector<JobId> jobs_kept_there(const std::vector<StoredJob>& jobs,
                                                 const std::vector<std::string>& files);

/// Makes `machine` the folder's. not_permitted: it is another machine's, which may run these jobs;
/// other errors: whose it is, or whether a file starts one of its jobs, can't be read now. Nothing
/// was changed then. A folder without a note, as that of an older daemon, counts as its own.
/// @param job_files  the folder jobs.d
[[nodiscard]] Result<void> claim_state_folder(StateFolder& folder, const MachineIdentity& machine,
                                              const std::vector<StoredJob>& jobs,
                                              const std::string& job_files);

}  // namespace acc::agent::daemon
