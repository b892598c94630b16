#pragma once

#include "common/duration.hpp"
#include "common/exit_status.hpp"
#include "common/job_verdict.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// Pure state machine of a job that one command runs on several hosts: it starts acc-launch on
/// each, lets all go when all are prepared, and ends with the job's exit code. What stands between
/// a host and us (ssh, another program) is its transport.
namespace acc::agent {

enum class HostPhase {
  waiting,   ///< its transport isn't started yet: only so many at once
  starting,  ///< no word yet
  prepared,  ///< its acc-launch has checked everything, and waits for the others
  running,
  gone,  ///< the transport has exited
};

/// What kept a host from being prepared, or the end of its connection.
struct HostTrouble {
  enum class What {
    not_started,    ///< the transport could not be started: `errnum`
    exited,         ///< before it was prepared
    other_version,  ///< `text`: which
    silent,         ///< no word in time
    same_daemon,    ///< as host `other`
  };
  What what = What::exited;
  ExitStatus status{};
  int errnum = 0;
  std::string text;  ///< the last lines of its standard error
  std::size_t other = 0;
};

/// Nothing was heard of a host.
struct HostSilence {
  Instant since;                   ///< the last answer
  std::optional<Instant> until{};  ///< then its transport gives it up, if that is known
};

struct FanOutHost {
  HostPhase phase = HostPhase::waiting;
  std::optional<HostTrouble> trouble;
  std::string daemon;            ///< which one answered; empty: none runs the part
  std::string job;               ///< id of its job, where a daemon runs it
  std::optional<int> exit_code;  ///< as its acc-launch reported it
  Instant ended_at{};            ///< then
  bool has_begun = false;        ///< it has run workers
  bool is_at_work = false;       ///< it runs them now
  bool is_ending = false;        ///< they are being stopped, or succeeded as those of others ran
  bool is_closed = false;        ///< we closed its life line
  bool is_apart = false;         ///< cut off, and not seen at work since
  bool was_asked = false;        ///< it was sent a stop signal
  std::optional<HostSilence> silence;
};

struct FanOutPolicy {
  std::size_t at_once = 64;       ///< transports that are being started
  Millis start_patience{30'000};  ///< without a word of any host
  Millis verdict_delay{4'000};    ///< after the first failure, for all others to be named with it
  Millis leave_patience{5'000};   ///< from closing a life line to SIGKILL for its transport
  Millis end_patience{120'000};   ///< from the first host's end to closing the life lines of others
  Millis apart_patience{15'000};  ///< the same, of hosts that can't be reached, or that were cut
                                  ///< off and looked for it as it succeeded
  Millis stop_patience{3'000};    ///< from the first host's end by a signal to telling the others
  Millis rest_patience{5'000};    ///< without workers anywhere, as the part of one host has ended
  Millis lost_patience{90'000};   ///< … as one can't be reached; longer than a restart is delayed
  Millis hurry_patience{1'000};   ///< from the third stop signal to leaving hosts that don't follow
  std::size_t min_hosts = 0;      ///< that the job needs; 0: not known
  std::string version;            ///< ours, which all hosts must have
  bool uses_daemons = false;      ///< each host reports the start of its job
  bool detaches = false;          ///< when all run workers, the jobs go on without us
  bool is_reader = false;         ///< the end of the jobs, whatever it is, is 0
  std::uint32_t leaves_at = 0;    ///< acc-ctl follows: so many Ctrl-C leave them; 0: never
};

enum class FanOutPhase {
  starting,  ///< until all hosts are prepared
  running,
  leaving,  ///< nothing runs, or soon nothing will: life lines are closed
  finished,
};

enum class FanOutTimer { start, verdict, leave, end, stop, rest, hurry, apart };
inline constexpr auto kFanOutTimers = static_cast<std::size_t>(FanOutTimer::apart) + 1;

using HostIndex = std::size_t;

struct FanOutState {
  FanOutPolicy policy;
  std::vector<FanOutHost> hosts;
  FanOutPhase phase = FanOutPhase::starting;
  bool has_failed = false;  ///< a host can't take part
  int stop_signal = 0;
  bool was_sent_again = false;  ///< … to further hosts, as SIGTERM
  std::uint32_t stop_requests = 0;
  bool is_end_armed = false;
  bool is_apart_armed = false;  ///< the job's end is known: hosts without contact get some time
  bool is_apart_over = false;   ///< … and have had it
  bool is_detached = false;
  std::optional<int> left;  ///< exit code of acc-ctl, which let the jobs go on
  std::optional<HostIndex> missed;  ///< the first whose part ended, and that the job can't do without
  bool is_rest_armed = false;       ///< nobody works: the others are told to end, after a patience
  bool is_rest_told = false;        ///< they were told, because of it
  JobVerdict verdict;  ///< of the hosts that ended by themselves
};

[[nodiscard]] FanOutState fan_out_over(std::size_t hosts, FanOutPolicy policy);

// ---- events ----
struct FanOutBegan {};
struct TransportFailed {
  HostIndex host = 0;
  int errnum = 0;
};
struct HostPrepared {
  HostIndex host = 0;
  std::string version;
  std::string daemon{};  ///< empty: none runs the part
};
struct HostReportedStart {
  HostIndex host = 0;
  std::string job;
};
/// Its workers are there, or are no longer.
struct HostWorks {
  HostIndex host = 0;
  bool is_at_work = false;
  bool is_ending = false;  ///< they are being stopped, or have all succeeded
};
/// The contact with its daemon is lost, or back.
struct HostContact {
  HostIndex host = 0;
  std::optional<HostSilence> silence;
};
struct HostReportedEnd {
  HostIndex host = 0;
  int exit_code = 0;
  Instant at{};
};
/// The transport has exited, and its output has been read.
struct TransportExited {
  HostIndex host = 0;
  ExitStatus status;
  std::string last_words;  ///< of its standard error, while the host was not running
};
struct FanOutSignal {
  int signo = 0;
};
/// Nothing reads our standard output or error any more.
struct FanOutReaderGone {};
struct FanOutTimerFired {
  FanOutTimer timer = FanOutTimer::start;
};
using FanOutEvent =
    std::variant<FanOutBegan, TransportFailed, HostPrepared, HostReportedStart, HostWorks,
                 HostContact, HostReportedEnd, TransportExited, FanOutSignal,
                 FanOutReaderGone, FanOutTimerFired>;

// ---- actions ----
struct StartTransport {
  HostIndex host = 0;
};
struct SendGo {
  HostIndex host = 0;
};
struct SendSignal {
  HostIndex host = 0;
  int signo = 0;
};
struct SendLeave {
  HostIndex host = 0;
};
struct SendWaitLonger {
  HostIndex host = 0;
};
/// The ids of all jobs are known.
struct RecordLaunch {};
/// acc-launch on that host stops the job there.
struct CloseLifeLine {
  HostIndex host = 0;
};
struct KillTransport {
  HostIndex host = 0;
};
struct ArmFanOutTimer {
  FanOutTimer timer = FanOutTimer::start;
  Millis delay{0};
};
struct DisarmFanOutTimer {
  FanOutTimer timer = FanOutTimer::start;
};
/// All hosts with a trouble, in one message.
struct TellTroubles {};
/// The connection ended and its acc-launch had not reported an end.
struct TellLost {
  HostIndex host = 0;
  ExitStatus status;
  std::string last_words;
};
/// Its daemon refused what it had agreed to, so the job is stopped on all.
struct TellNotStarted {
  HostIndex host = 0;
};
/// Ended by this signal, before anything ran.
struct TellStoppedEarly {
  int signo = 0;
};
/// acc-ctl passed a Ctrl-C on; the next one leaves the jobs.
struct TellAsked {};
/// acc-ctl lets the jobs go on.
struct TellLetGo {};
/// The others have ended; this one gets no more time.
struct TellLate {
  HostIndex host = 0;
};
/// The contact is lost, or back.
struct TellContact {
  HostIndex host = 0;
};
/// No host is in contact any more, and all are waited for longer.
struct TellAlone {};
/// It can't be reached, or was told to kill its workers and hasn't reported their end: it is left
/// to its lease.
struct TellLeft {
  HostIndex host = 0;
  bool is_over = false;  ///< the job has ended by itself: there, too, or it can't go on there
};
/// Its part has ended for good, and the job can't go on: the others are told to end.
struct TellMissed {
  HostIndex host = 0;
};
struct FinishFanOut {
  int exit_code = 0;
};
using FanOutAction = std::variant<StartTransport, SendGo, SendSignal, SendLeave, SendWaitLonger, RecordLaunch,
                                  CloseLifeLine, KillTransport, ArmFanOutTimer, DisarmFanOutTimer, TellTroubles, TellLost, TellNotStarted,
                                  TellStoppedEarly, TellAsked, TellLetGo, TellLate, TellContact, TellAlone, TellLeft, TellMissed,
                                  FinishFanOut>;
using FanOutActions = std::vector<FanOutAction>;

/// Whether all parts of a job that was to be left ended before any was seen at work: it ran, and
/// there is nothing to leave. Not where one was refused, or the job was stopped.
[[nodiscard]] bool has_ended_before_detach(const FanOutState& state);

FanOutActions step(FanOutState& state, const FanOutEvent& event);

}  // namespace acc::agent
