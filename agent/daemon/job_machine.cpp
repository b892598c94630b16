#include "agent/daemon/job_machine.hpp"

#include "common/exit_codes.hpp"
#include "common/restart_policy.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

namespace {

void append(JobActions& actions, JobActions more) {
  for (auto& action : more) actions.push_back(std::move(action));
}

JobActions end(JobLife& life, JobState state, const std::string& text) {
  life.phase = Phase::ended;
  life.end = state;
  life.grace_s.reset();
  return {DisarmTimers{}, Record{}, Report{"ended", text}, FreeSlots{}};
}

JobActions start(JobLife& life) {
  life.phase = Phase::starting;
  life.exit_code.reset();
  ++life.starts;
  return {StartGuardian{}};
}

// Which end an exit code is. A job that was stopped is `stopped` whatever its code, also where
// another daemon was asked for it: that of another node of the job.
JobState end_of(const JobLife& life, bool was_stopped) {
  if (life.stop_asked || was_stopped) return JobState::stopped;
  return life.exit_code == 0 ? JobState::succeeded : JobState::failed;
}

bool wants_restart(const JobLife& life) {
  if (life.stop_asked || life.rule == RestartRule::no) return false;
  if (life.rule == RestartRule::on_failure && life.exit_code == 0) return false;
  return life.max_starts_again == 0 || life.starts_again < life.max_starts_again;
}

/// How a guardian ended.
struct End {
  std::string text;
  Delay lived{0};
  double jitter = 0.5;
  bool has_started = true;  ///< false: no worker, as the script isn't there
  bool was_stopped = false;
  std::string reason{};  ///< without the exit code, which is shown beside it; empty: as `text`
};

/// @param tries  in a row that were in vain, which this one is added to
Delay next_delay(std::uint32_t& tries, bool has_started, double jitter) {
  RestartPolicy policy;
  policy.delay_max = has_started ? kLongestDelay : kLongestDelayNotStarted;
  if (!has_started) tries = std::max(tries, 1U);
  const Delay delay = restart_delay(policy, tries, jitter);
  if (tries < 32) ++tries;
  return delay;
}

JobActions delay_restart(JobLife& life, const End& end) {
  if (end.lived >= kHealthyAfter) life.quick_failures = 0;
  const Delay delay = next_delay(life.quick_failures, end.has_started, end.jitter);
  ++life.starts_again;
  life.phase = Phase::delayed;
  life.reason = end.reason.empty() ? end.text : end.reason;
  return {DisarmTimers{}, Record{}, Report{"restarted", with_delay(end.text, delay)},
          ArmDelay{delay}};
}

// What it takes of the node has changed.
JobActions ask_anew(JobLife& life) {
  life.phase = Phase::queued;
  return {FreeSlots{}, Record{}, AskForSlots{}};
}

// A guardian is gone, in whatever way.
JobActions gone(JobLife& life, const End& how) {
  if (life.again) {  // it was stopped to start anew, in the slots that it has, or in others
    life.again = false;
    const bool asks_anew = std::exchange(life.asks_anew, false);
    life.stop_asked = false;
    life.quick_failures = 0;
    life.starts_again = 0;
    life.reason.clear();
    JobActions actions{DisarmTimers{}, Record{}, Report{"restarted", "restarted: " + how.text}};
    append(actions, asks_anew ? ask_anew(life) : start(life));
    return actions;
  }
  if (wants_restart(life)) return delay_restart(life, how);
  const JobState state = end_of(life, how.was_stopped);
  return end(life, state, state == JobState::stopped ? "stopped: " + how.text : how.text);
}

bool has_guardian(const JobLife& life) {
  return life.phase == Phase::starting || life.phase == Phase::running ||
         life.phase == Phase::stopping;
}

JobActions on(JobLife& life, const Submitted&) {
  if (life.phase != Phase::queued) return {};
  return {Report{"submitted", "submitted"}, AskForSlots{}};
}

JobActions on(JobLife& life, const SlotsGiven&) {
  if (life.phase != Phase::queued) return {FreeSlots{}};
  life.reason.clear();
  return start(life);
}

JobActions on(JobLife& life, const GuardianStarted&) {
  life.postponed = 0;
  if (life.phase == Phase::starting) {
    life.phase = Phase::running;
    life.reason.clear();
  }
  return {Report{"started", life.starts == 1 ? "started" : "started again"}};
}

JobActions on(JobLife& life, const StartFailed& failed) {
  if (!has_guardian(life)) return {};
  life.exit_code = failed.exit_code;
  life.reason = failed.reason;
  return gone(life, {failed.reason, Delay{0}, failed.jitter, false});
}

JobActions on(JobLife& life, const StartPostponed& postponed) {
  if (!has_guardian(life)) return {};
  if (life.stop_asked || life.again)
    return on(life, StartFailed{to_int(ExitCode::resources), postponed.reason, postponed.jitter});
  if (life.starts > 0) --life.starts;  // that one never ran
  life.phase = Phase::delayed;
  life.reason = postponed.reason;
  return {DisarmTimers{}, Record{}, ArmDelay{next_delay(life.postponed, false, postponed.jitter)}};
}

JobActions on(JobLife& life, const GuardianEnded& ended) {
  if (!has_guardian(life)) return {};
  life.exit_code = ended.exit_code;
  life.reason.clear();
  const auto code = "exit code " + std::to_string(ended.exit_code);
  End how{code, ended.lived, ended.jitter, true, ended.was_stopped};
  if (!ended.has_begun) {
    life.reason =
        "acc-launch exited with code " + std::to_string(ended.exit_code) + " before it began";
    how = {life.reason, ended.lived, ended.jitter, false};
  } else if (!ended.not_started.empty()) {
    how.text = ended.not_started + " (" + code + ")";
    how.reason = ended.not_started;
    how.has_started = false;
  }
  return gone(life, how);
}

JobActions on(JobLife& life, const GuardianLost& lost) {
  if (!has_guardian(life)) return {};
  life.exit_code = to_int(ExitCode::agent_lost);
  life.reason = "acc-launch was lost: " + lost.how;
  return gone(life, {life.reason, lost.lived, lost.jitter});
}

JobActions ask_to_stop(JobLife& life, std::optional<std::uint32_t> grace_s) {
  life.grace_s = grace_s;
  life.phase = Phase::stopping;
  JobActions actions{Record{}, Report{"stopping", "stop requested"}, StopGuardian{grace_s}};
  if (grace_s) actions.emplace_back(ArmKill{std::chrono::seconds{*grace_s} + kKillAfterGrace});
  return actions;
}

JobActions on(JobLife& life, const StopAsked& asked) {
  if (life.phase == Phase::ended) return {};
  life.stop_asked = true;
  life.again = life.asks_anew = false;
  if (!has_guardian(life)) {
    life.reason = life.starts == 0 ? "stopped before its first start"
                                   : "stopped while it waited for its restart";
    return end(life, JobState::stopped, life.reason);
  }
  return ask_to_stop(life, asked.grace_s);
}

JobActions on(JobLife& life, const EndSignaled&) {
  if (!has_guardian(life)) return {};
  life.stop_asked = true;
  life.again = false;
  return {Record{}};
}

JobActions start_anew(JobLife& life) {
  life.phase = Phase::queued;
  life.stop_asked = false;
  life.again = life.asks_anew = false;
  life.starts_again = 0;
  life.quick_failures = life.postponed = 0;
  life.exit_code.reset();
  life.reason.clear();
  return {Record{}, Report{"restarted", "restart requested"}, AskForSlots{}};
}

JobActions on(JobLife& life, const RestartAsked&) {
  if (life.phase == Phase::ended) return start_anew(life);
  if (life.phase == Phase::delayed) {
    life.quick_failures = life.postponed = 0;
    JobActions actions{DisarmTimers{}};
    append(actions, start(life));
    return actions;
  }
  if (life.phase == Phase::stopping) {
    life.again = true;
    return {Record{}};
  }
  return {};  // it is about to start, or its agent restarts the workers
}

JobActions on(JobLife& life, const Reconfigured& e) {
  if (life.phase == Phase::ended) return start_anew(life);
  if (!has_guardian(life)) {
    if (!e.has_other_share) return on(life, RestartAsked{});
    JobActions actions{DisarmTimers{}};
    append(actions, ask_anew(life));
    return actions;
  }
  life.again = true;
  life.asks_anew = life.asks_anew || e.has_other_share;
  if (life.phase == Phase::stopping) return {Record{}};
  life.stop_asked = true;  // against the policy alone: `again` comes first
  return ask_to_stop(life, life.grace_s);
}

JobActions on(JobLife& life, const DelayOver&) {
  if (life.phase != Phase::delayed) return {};
  return start(life);
}

JobActions on(JobLife& life, const KillDue&) {
  if (life.phase != Phase::stopping) return {};
  return {KillGuardian{}};
}

JobActions on(JobLife& life, const Found& found) {
  if (life.phase == Phase::queued) return {AskForSlots{}};
  if (life.phase == Phase::delayed) return {ArmDelay{Delay{0}}};
  if (life.phase == Phase::ended) return {};
  if (found.lives) {
    if (life.phase == Phase::starting) life.phase = Phase::running;
    // The signal may have been lost with the daemon that recorded the stop.
    if (life.phase != Phase::stopping) return {};
    JobActions actions{StopGuardian{life.grace_s}};
    if (life.grace_s)
      actions.emplace_back(ArmKill{std::chrono::seconds{*life.grace_s} + kKillAfterGrace});
    return actions;
  }
  if (found.exit_code)
    return on(life, GuardianEnded{*found.exit_code, Delay{0}, found.jitter, true, found.was_stopped,
                                  found.not_started});
  if (!found.has_started) {
    if (life.stop_asked && !life.again) {
      life.reason = "stopped before it ran";
      return end(life, JobState::stopped, life.reason);
    }
    life.again = false;
    life.stop_asked = false;
    if (life.starts > 0) --life.starts;  // that one never ran
    return std::exchange(life.asks_anew, false) ? ask_anew(life) : start(life);
  }
  return on(life, GuardianLost{
                      found.same_boot ? "it ended without an exit code" : "the node was restarted",
                      Delay{0}, found.jitter});
}

}  // namespace

JobState state_of(const JobLife& life) {
  switch (life.phase) {
    case Phase::queued:
    case Phase::delayed:
      return JobState::waiting;
    case Phase::starting:
    case Phase::running:
      return JobState::running;
    case Phase::stopping:
      return JobState::stopping;
    case Phase::ended:
      break;
  }
  return life.end;
}

bool has_slots(const JobLife& life) {
  return life.phase != Phase::queued && life.phase != Phase::ended;
}

std::string with_delay(const std::string& text, Delay delay, const std::string& then) {
  if (delay <= Delay{0}) return text + "; " + then + " at once";
  const auto tenths = (delay.count() + 50) / 100;
  return text + "; " + then + " in " + std::to_string(tenths / 10) + '.' +
         std::to_string(tenths % 10) + " s";
}

JobActions step(JobLife& life, const JobChange& change) {
  return std::visit([&](const auto& event) { return on(life, event); }, change);
}

}  // namespace acc::agent::daemon
