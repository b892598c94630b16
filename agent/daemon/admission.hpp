#pragma once

#include "agent/daemon/admission_rules.hpp"
#include "agent/daemon/job_keeper.hpp"

#include <boost/asio/awaitable.hpp>

#include <optional>

namespace acc::agent::daemon {

/// Of this daemon: root, and the user that it runs as.
[[nodiscard]] bool is_operator(const Principal& who);
[[nodiscard]] bool may_see(const Principal& who, uid_t owner);

/// The admission of submissions to this node: whose jobs they become, whether it takes them now
/// (admission_rules.hpp), and what acc-launch itself finds wrong with them.
class Admission {
 public:
  /// @param keeper  outlives this
  explicit Admission(JobKeeper& keeper) : keeper_{keeper} {}

  /// Nothing is admitted any more.
  void close() { is_closed_ = true; }
  /// The user that it would run as; all that can be judged without running acc-launch, but for its
  /// slots where it names none.
  boost::asio::awaitable<Result<LoginUser>> admit(Principal who, Submission& submission);
  /// What acc-launch finds wrong, as that user in that folder, and whether what the workers execute
  /// is there; nothing: all is well.
  boost::asio::awaitable<std::optional<Error>> try_launcher(Principal who, LoginUser user,
                                                            Submission submission);
  /// Why an ended job can't start again now; nothing: it can.
  [[nodiscard]] std::optional<Error> restart_refusal(const Principal& who, const Job& job) const;

 private:
  boost::asio::awaitable<Result<LoginUser>> user_for(Principal who, std::string name);
  boost::asio::awaitable<Result<LauncherTrials::Trial>> plan_of(Principal who, LoginUser user,
                                                                Submission submission);
  [[nodiscard]] std::optional<Error> refusal(const Principal& who, const Submission& submission,
                                             uid_t uid) const;
  [[nodiscard]] NodeLoad load(const Principal& who, uid_t uid) const;

  JobKeeper& keeper_;
  bool is_closed_ = false;
};

}  // namespace acc::agent::daemon
