#pragma once

#include "agent/delivered_signals.hpp"
#include "agent/group_state.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/types.h>

#include <functional>
#include <optional>

namespace acc::agent {

/// A signal that ends a job, or the end of the guardian (pure).
[[nodiscard]] bool asks_for_end(const Event& event);

/// Signals to this process, and what they mean for the job.
///
/// Used on the loop's thread only, one in a process: it blocks the signals that it reads. The
/// io_context and the state outlive it.
class JobSignals {
 public:
  struct Hooks {
    std::function<void(const Event&)> on_event;  ///< for the supervisor
    std::function<void()> on_child;              ///< SIGCHLD
    /// SIGTSTP, SIGCONT or SIGWINCH, which end nothing.
    std::function<void(int signo)> on_job_control;
    std::function<void()> on_press;  ///< Ctrl-C in a terminal that a worker has
    std::function<bool()> is_guardian_gone;
    /// Collects the workers' stacks before `signo` ends them. @return false: not now
    std::function<bool(int signo, std::function<void()> done)> collect_stacks;
  };
  JobSignals(boost::asio::io_context& io, const GroupState& group, pid_t guardian, Hooks hooks);

  void watch();
  /// Those that have arrived. A worker that died of one is reported to have died by itself if its
  /// end is looked at before.
  void take_arrived();
  /// When the workers got such a signal directly; nothing: they get it from here.
  [[nodiscard]] std::optional<Instant> delivered(int signo) const {
    return delivered_.when(signo, clock_now());
  }
  /// The job is over: signals wait until end_asked() looks at them.
  void stop() { is_stopped_ = true; }

  /// One that arrived, or came from the launching host.
  void take(int signo);
  /// Two presses in a worker's terminal. The first one only went to the worker; with it, this is
  /// the second.
  void stop_from_terminal();
  /// Whether the event under way is one of two presses that arrive together: the kernel sent
  /// SIGINT to the worker, and the first of them is old.
  [[nodiscard]] bool is_of_two_presses() const { return is_of_two_presses_; }

  /// For the time after the loop: has one arrived that asks for an end?
  [[nodiscard]] bool end_asked();

 private:
  void dump_stacks_before(int signo);
  void take_presses();
  void take_press();

  const GroupState& group_;
  pid_t guardian_;
  Hooks hooks_;
  boost::asio::posix::stream_descriptor signals_;
  UniqueFd presses_;  ///< Ctrl-C in a worker's terminal alone
  DeliveredSignals delivered_;
  bool is_stopped_ = false;
  bool stops_after_stacks_ = false;  ///< the first SIGQUIT; the next one doesn't wait for them
  bool is_of_two_presses_ = false;
  bool end_asked_ = false;
};

}  // namespace acc::agent
