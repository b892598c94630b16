#pragma once

#include "agent/daemon/guardian_process.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <sys/types.h>

#include <chrono>
#include <string>

namespace acc::agent::daemon {

/// Marks the processes of a trial where they have no control group of their own.
inline constexpr const char* kTrialVariable = "ACC_TRIAL";

/// All processes of one trial: acc-launch, and what it or the user's code in it started. They are
/// in a control group of their own beside those of the jobs, which stays root's, so that nothing of
/// them can leave it or divide it. Where there are no such groups they are found by a variable, and
/// one that has dropped it is missed.
class TrialProcesses {
 public:
  /// @param jobs_group  the control group above those of the jobs; may be empty
  /// @param pool  outlives this
  TrialProcesses(std::string jobs_group, uid_t uid, boost::asio::thread_pool& pool);

  /// Puts the child that will be forked into the group, and marks it.
  void enter(GuardianRequest& request) const;
  /// It was forked, and still waits at its gate. @return false: not in the group
  bool look_after_fork();
  /// SIGKILL to all of them, soon: for when the caller has gone.
  void kill_soon() const;
  /// Ends all of them, and removes the group. @return false: some still live after `limit`
  boost::asio::awaitable<bool> end(std::chrono::milliseconds limit) const;

 private:
  [[nodiscard]] std::string mark() const { return std::string{kTrialVariable} + '=' + name_; }

  std::string jobs_group_;
  uid_t uid_;
  boost::asio::thread_pool& pool_;
  std::string name_;  ///< of the group, and the variable's value: no job can have it
  UniqueFd group_;
};

/// Ends what trials of an earlier daemon left, which was killed meanwhile.
boost::asio::awaitable<void> end_earlier_trials(std::string jobs_group,
                                                boost::asio::thread_pool& pool);

}  // namespace acc::agent::daemon
