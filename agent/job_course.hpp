#pragma once

#include "agent/group_state.hpp"
#include "agent/service_notify.hpp"
#include "agent/service_watchdog.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {
struct RoundPlace;
struct Stop;
}  // namespace acc::rendezvous

namespace acc::agent {

class Containment;
struct FailureReport;
class JobEvents;
class JobRecorder;
class JobSignals;
struct LeftOver;
struct Losses;
class RoundStarter;
class RoundTerms;
class UserMessages;

/// Tells the course of the job on this node to all that follow it: the user by messages, --events,
/// systemd, and the report at the end.
///
/// Used on the loop's thread only.
class JobCourse {
 public:
  /// All outlive it: the agent owns them.
  struct Parts {
    boost::asio::io_context& io;
    pid_t guardian = 0;
    std::optional<LocalRank> reader;  ///< the worker that has our stdin
    const GroupState& group;
    const JobSignals& signals;
    const Containment& containment;
    const RoundStarter& starter;
    const UserMessages& messages;
    RoundTerms& terms;
    JobRecorder& recorder;
    JobEvents& events;
    /// Why a worker of this round wants no restart; empty: it didn't say so.
    std::function<std::string(LocalRank)> no_restart_reason;
  };
  explicit JobCourse(const Parts& parts);

  /// systemd's watchdog is fed from now on by the loop.
  void begin() { watchdog_.begin(); }
  /// … and where the loop has ended, by the one who waits.
  void feed_watchdog() const;

  // ---- what the supervisor tells ----
  void tell(const TellFailure& a);
  void tell(const TellRestart& a);
  void tell(const TellStartRetry& a);
  void tell(const TellStopping& a);
  void tell(const TellNoRestart& a);
  void tell(const TellHurry& a);
  void tell(const TellKilling& a);
  void tell(const TellRestartAsked& a);

  // ---- orders of the coordinator ----
  void round_ordered(const rendezvous::RoundPlace& place);
  /// @param own_name  of this node
  void stop_ordered(const rendezvous::Stop& stop, const std::string& own_name);
  void note(const std::string& text, bool is_warning);

  // ---- workers and output ----
  void start_failed(const StartFailure& failure);
  void round_started();
  void worker_ended();
  /// Processes that outlived their workers have just got SIGTERM.
  void left_overs_asked(const std::vector<LeftOver>& asked);
  void output_degraded(const Losses& losses);
  void job_over(Outcome outcome) const;

  /// To the user: why the workers could not be started.
  [[nodiscard]] std::string words_for(const StartFailure& failure) const;
  /// What to do about a failure of a worker here; empty: not known.
  /// @param host  this one, if it is told on other nodes; empty: it is told here
  [[nodiscard]] std::string hint_for(const FailureReport& failure, const std::string& host) const;
  /// As the worker said why a restart won't help; empty: it didn't.
  [[nodiscard]] std::string no_restart_reason(LocalRank worker) const {
    return parts_.no_restart_reason(worker);
  }

 private:
  Parts parts_;
  ServiceNotifier service_;
  bool is_ready_ = false;  ///< the service manager knows it: a round has started here
  ServiceWatchdog watchdog_;
};

}  // namespace acc::agent
