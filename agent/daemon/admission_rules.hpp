#pragma once

#include "agent/daemon/guardian_words.hpp"
#include "agent/daemon/jobs.hpp"
#include "agent/daemon/slot_table.hpp"
#include "common/error.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

/// Which jobs a node takes, and which of them it takes now (pure).
namespace acc::agent::daemon {

struct AdmissionLimits {
  std::size_t jobs = 0;           ///< that are kept, ended ones too
  std::size_t jobs_of_user = 0;   ///< that haven't ended; root has no such limit
  std::size_t bytes_of_user = 0;  ///< of the words and variables of all its jobs
  std::size_t bytes_of_all = 0;   ///< of those of all users' jobs but root's
};

/// What is on a node already, when a user's job is to be admitted.
struct NodeLoad {
  bool is_closed = false;  ///< acc-agent shuts down
  std::string drained;     ///< the reason; empty: it takes jobs
  std::size_t jobs = 0;
  std::size_t jobs_of_user = 0;
  std::size_t bytes_of_user = 0;
  std::size_t bytes_of_all = 0;  ///< of all users but root
  std::vector<JobId> seen;  ///< jobs with slots that the caller may see
};

/// Why no job of this user is taken; nothing: they are. One person may have thousands of uids
/// (/etc/subuid), and would count as thousands of users, but only one account.
[[nodiscard]] std::optional<Error> refusal_of_account(const LoginUser& user);
/// The same of the owner of a file in jobs.d, whose job it would be.
[[nodiscard]] std::optional<Error> refusal_of_file_owner(const LoginUser& owner);
/// Why the node takes no job at all; nothing: it does.
[[nodiscard]] std::optional<Error> refusal_of_all(const NodeLoad& load);
/// Why a submission can't be taken now, as a job of `uid`; nothing: it can.
[[nodiscard]] std::optional<Error> refusal_of(const Submission& submission, uid_t uid,
                                              const AdmissionLimits& limits, const NodeLoad& load,
                                              const SlotTable& slots);
/// The same of an ended job that is to start again.
[[nodiscard]] std::optional<Error> refusal_of_restart(const Submission& submission, uid_t uid,
                                                      const NodeLoad& load, const SlotTable& slots);
/// What a job that waits for slots waits for. `drained`: the reason; empty: the node takes jobs.
[[nodiscard]] std::string waiting_words(const Submission& submission, const std::string& drained,
                                        const SlotTable& slots);

}  // namespace acc::agent::daemon
