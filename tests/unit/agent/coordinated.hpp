#pragma once

#include "agent/supervisor.hpp"

#include <cerrno>
#include <csignal>
#include <string>

/// Actions as words, and one coordinated node whose life a test tells.
namespace acc::agent {

inline std::string timer_name(Timer timer) {
  constexpr const char* kNames[] = {"grace",     "give_up", "backoff",   "close_timeout",
                                    "left_over", "startup", "interrupt", "culprit"};
  return kNames[static_cast<std::size_t>(timer)];
}

struct Words {
  std::string operator()(const StartRound& a) { return "start " + std::to_string(a.round.value()); }
  std::string operator()(const SignalWorkers& a) { return signal_name(a.signo); }
  std::string operator()(const TerminateEscaped&) { return "escaped"; }
  std::string operator()(const KillAll&) { return "kill"; }
  std::string operator()(const ArmTimer& a) {
    return timer_name(a.timer) + " " + describe(a.after);
  }
  std::string operator()(const DisarmTimer&) { return ""; }
  std::string operator()(const Finish& a) {
    return "finish " + std::string{to_string(a.end.outcome)} + " " +
           std::to_string(a.end.exit_code);
  }
  std::string operator()(const TellFailure&) { return "tell failure"; }
  std::string operator()(const TellRestart&) { return "tell restart"; }
  std::string operator()(const TellStartRetry&) { return "tell retry"; }
  std::string operator()(const TellStopping&) { return "tell stopping"; }
  std::string operator()(const TellNoRestart&) { return "tell no restart"; }
  std::string operator()(const TellHurry&) { return "tell hurry"; }
  std::string operator()(const TellKilling&) { return "tell killing"; }
  std::string operator()(const TellRestartAsked&) { return "tell restart asked"; }
  std::string operator()(const AskRestart&) { return "ask restart"; }
  std::string operator()(const ReportFailed&) { return "report failed"; }
  std::string operator()(const ReportStartFailed&) { return "report start failed"; }
  std::string operator()(const ReportCompleted&) { return "report completed"; }
  std::string operator()(const ReportStopped& a) {
    return a.progress ? "report stopped with progress" : "report stopped";
  }
  std::string operator()(const ReportUnkillable&) { return "report unkillable"; }
  std::string operator()(const AskJob& a) { return "ask " + signal_name(a.signo); }
};

/// "SIGTERM, escaped, grace 15 s": what is to be done, in order; timers that are put off left out.
inline std::string words(const Actions& actions) {
  std::string text;
  for (const auto& action : actions) {
    const std::string word = std::visit(Words{}, action);
    if (word.empty()) continue;
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

/// One node of a coordinated job, with two workers.
struct Story {
  GroupState group;
  Instant now{};

  Story() {
    group.size = 2;
    group.coordinated = true;
    group.is_connected = true;
    group.stop.preempt_signals = {SIGUSR2};
  }
  std::string feed(const Event& event) { return words(step(group, event)); }
  std::string ordered(std::uint64_t round) { return feed(RoundOrdered{Round{round}, {}, now}); }
  std::string signal(int signo) { return feed(SignalArrived{signo, now}); }
  std::string exits(std::uint32_t rank, ExitStatus status) {
    return feed(WorkerExited{LocalRank{rank}, status, now});
  }
  std::string emptied(bool progress = false) { return feed(Emptied{now, progress, 0.5}); }
  std::string stop(int signo, std::chrono::seconds grace, bool for_good = false) {
    return feed(StopOrdered{signo, grace, for_good, now, false});
  }
  /// That another node was asked for.
  std::string stop_elsewhere(int signo, std::chrono::seconds grace) {
    return feed(StopOrdered{signo, grace, true, now, true});
  }
  std::string closed(Outcome outcome, int code) { return feed(JobClosed{{outcome, code}, now}); }
  std::string fires(Timer timer) { return feed(TimerFired{timer, now}); }
  std::string cannot_start(int errnum, const char* step = "clone") {
    return feed(StartFailed{{LocalRank{0}, errnum, step}, now});
  }
  /// Both workers end, then nothing is left.
  std::string all_end(ExitStatus status = Signaled{SIGTERM}) {
    exits(0, status);
    exits(1, status);
    return emptied();
  }

  // ---- the situations of the table ----
  void awaiting() { feed(Began{now}); }
  void starting() {
    awaiting();
    ordered(0);
  }
  void running() {
    starting();
    feed(RoundStarted{now});
  }
  void failing() {
    running();
    exits(0, Exited{7});
  }
  void killing() {
    failing();
    now += std::chrono::seconds{15};
    fires(Timer::grace);
  }
  void backing_off() {
    starting();
    cannot_start(EAGAIN);
    emptied();
  }
  void completed() {
    running();
    all_end(Exited{0});
  }
  void finished() {
    awaiting();
    closed(Outcome::succeeded, 0);
  }
};

}  // namespace acc::agent
