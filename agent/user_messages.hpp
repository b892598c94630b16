#pragma once

#include "agent/containment.hpp"
#include "agent/group_state.hpp"
#include "agent/report.hpp"

#include <functional>
#include <string>

namespace acc::agent {

/// One-line messages to the user about the course of the job, on stderr. With --quiet only those
/// that need attention.
class UserMessages {
 public:
  UserMessages(std::function<void(std::string_view)> say, const OutputPlan& plan, bool color);

  /// Of one launch over several hosts: whether this node tells what is the whole job's, its end as
  /// well. The first host does, until the coordinator is on another one.
  void tell_job(bool is_told_here);
  [[nodiscard]] bool tells_job() const { return !is_told_elsewhere_; }
  /// … now or before.
  [[nodiscard]] bool has_told_job() const { return has_told_job_; }

  void error(const std::string& text) const;
  void warning(const std::string& text) const;
  void note(const std::string& text) const;
  /// A note of each node's own: told on all of them.
  void note_of_node(const std::string& text) const;
  /// A note that is shown with --quiet, too.
  void announce(const std::string& text) const;
  /// Many lines of evidence, made safe for a terminal; of a long text the beginning.
  void text(const std::string& lines) const;
  void failure(const FailureReport& failure) const;
  /// Of a worker without our standard input: how it gets that, if it failed for want of it; empty:
  /// it didn't.
  [[nodiscard]] static std::string input_hint(const FailureReport& failure);
  /// Whether the worker wrote that another process was killed, as pools and data loaders do.
  [[nodiscard]] static bool names_killed_process(const FailureReport& failure);
  /// Of a failure while the kernel killed another process of the job: the worker's words may name
  /// no cause. Empty: it killed none, or the worker itself.
  /// @param kills  by the out-of-memory killer in this attempt
  /// @param host   to be named; empty: it is told there
  [[nodiscard]] static std::string memory_hint(const FailureReport& failure, std::uint64_t kills,
                                               const std::string& host = {});
  /// Of a script that was started otherwise than it expects: by a `program`, its interpreter,
  /// without a module that it imports; or without a rank. Also of errors that don't name their own
  /// cure, as two workers on one GPU. Empty: none of them.
  struct Start {
    std::string program;
    bool is_plain = false;          ///< it is a process without a rank
    std::string host{};             ///< to be named; empty: it is told there
    std::uint16_t master_port = 0;  ///< 0: there is none
  };
  [[nodiscard]] static std::string start_hint(const FailureReport& failure, const Start& start);
  void restart(const TellRestart& told) const;
  void start_retry(const TellStartRetry& told, const std::string& words) const;
  void stopping(const TellStopping& told) const;
  void no_restart(const TellNoRestart& told) const;
  /// @param is_first  nobody was told of a stop before
  void hurry(const TellHurry& told, bool is_first) const;
  void kept_interrupt() const;
  void killing(const TellKilling& told, const std::vector<LeftOver>& alive) const;
  void restart_asked(const TellRestartAsked& told) const;
  void left_over(const std::vector<LeftOver>& processes) const;
  void traced_death(const WorkerRecord& worker) const;
  /// What these ranks, which have ended after they were asked to, started and still works.
  void programs_awaited(const std::vector<Rank>& ranks, const std::vector<pid_t>& programs) const;
  void degraded(const Losses& losses) const;

 private:
  void line(const std::string& text, bool matters) const;
  /// Of the whole job: the same on each of its nodes.
  void of_job(const std::string& text, bool matters) const;

  std::function<void(std::string_view)> say_;
  bool quiet_;
  bool is_told_elsewhere_;
  bool has_told_job_;
  std::string name_;  ///< "acc-launch:", with this host's name if another one reports the job
  bool color_;
};

}  // namespace acc::agent
